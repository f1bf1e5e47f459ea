//! truth: as truth.c, for Rust's own locks, which block in futex calls. usage: truth SCENARIO ROUNDS FILE
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};
use std::sync::{mpsc, Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

#[repr(C)]
struct Timespec {
    s: i64,
    ns: i64,
}
extern "C" {
    fn clock_gettime(clock: i32, t: *mut Timespec) -> i32;
    fn gettid() -> i32;
}
fn now() -> u64 {
    let mut t = Timespec { s: 0, ns: 0 };
    unsafe { clock_gettime(1, &mut t) };
    t.s as u64 * 1_000_000_000 + t.ns as u64
}
fn tid() -> i32 {
    unsafe { gettid() }
}
fn pause(i: u64, us: u64) {
    thread::sleep(Duration::from_micros(us + i * 37 % us));
}

type Lines = Vec<(i32, u64, u64, i32)>;

fn mutex(rounds: u64) -> Lines {
    let lock = Arc::new(Mutex::new(0));
    let threads: Vec<_> = (0..4u64)
        .map(|k| {
            let lock = lock.clone();
            thread::spawn(move || {
                let mut lines = Lines::new();
                for i in 0..rounds {
                    let t = now();
                    let mut last = lock.lock().unwrap();
                    lines.push((tid(), t, now(), *last));
                    pause(i + k, 150);
                    *last = tid();
                    drop(last);
                    pause(i * 3 + k, 300);
                }
                lines
            })
        })
        .collect();
    threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
}

fn condvar(rounds: u64) -> Lines {
    let pair = Arc::new((Mutex::new((0u64, 0)), Condvar::new()));
    let other = pair.clone();
    let waiter = thread::spawn(move || {
        let mut lines = Lines::new();
        let mut state = other.0.lock().unwrap();
        for _ in 0..rounds {
            while state.0 == 0 {
                let t = now();
                state = other.1.wait(state).unwrap();
                lines.push((tid(), t, now(), state.1));
            }
            state.0 -= 1;
        }
        lines
    });
    for i in 0..rounds {
        pause(i, 300);
        let mut state = pair.0.lock().unwrap();
        *state = (state.0 + 1, tid());
        drop(state);
        pair.1.notify_one();
    }
    waiter.join().unwrap()
}

fn park(rounds: u64) -> Lines {
    let go = Arc::new(AtomicI32::new(0));
    let seen = go.clone();
    let waiter = thread::spawn(move || {
        let mut lines = Lines::new();
        for _ in 0..rounds {
            let t = now();
            thread::park();
            lines.push((tid(), t, now(), seen.load(SeqCst)));
        }
        lines
    });
    let mut i = 0;
    while !waiter.is_finished() {
        pause(i, 300);
        i += 1;
        go.store(tid(), SeqCst);
        waiter.thread().unpark();
    }
    waiter.join().unwrap()
}

fn channel(rounds: u64) -> Lines {
    let (send, receive) = mpsc::channel::<i32>();
    let waiter = thread::spawn(move || {
        let mut lines = Lines::new();
        for _ in 0..rounds {
            let t = now();
            let from = receive.recv().unwrap();
            lines.push((tid(), t, now(), from));
        }
        lines
    });
    for i in 0..rounds {
        pause(i, 300);
        send.send(tid()).unwrap();
    }
    waiter.join().unwrap()
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let rounds: u64 = args[2].parse().unwrap();
    let lines = match args[1].as_str() {
        "mutex" => mutex(rounds),
        "condvar" => condvar(rounds),
        "park" => park(rounds),
        "mpsc" => channel(rounds),
        other => panic!("no scenario {other}"),
    };
    let text: String = lines.iter().map(|l| format!("{} {} {} {} 0 {}\n", args[1], l.0, l.1, l.2, l.3)).collect();
    std::fs::write(&args[3], text).unwrap();
}
