// Variables of all kinds, to be named by address.
#include <pthread.h>
#include <thread>

namespace cache {
struct Shard {
    long hits;
    pthread_mutex_t lock;
};
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // .data or .bss
static Shard shards[4];
const int table[8] = {1, 2, 3};
} // namespace cache
thread_local int mine = 7;

int main() {
    static pthread_mutex_t inner;
    pthread_mutex_lock(&cache::lock);
    pthread_mutex_lock(&inner);
    for (auto &s : cache::shards) pthread_mutex_lock(&s.lock);
    return mine + cache::table[mine & 7];
}
