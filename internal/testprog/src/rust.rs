// rust: std Mutex, Condvar, mpsc, RwLock, park, sleep and threads, with a known hot function
// (work::mix_block) and a contended Mutex. The first argument scales the work; prints a checksum.
use std::collections::HashMap;
use std::sync::{mpsc, Arc, Condvar, Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

mod work {
    #[inline(never)]
    pub fn mix_block(seed: u64, rounds: u32) -> u64 {
        let mut x = seed | 1;
        for _ in 0..rounds {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x = x.wrapping_mul(0x9e3779b97f4a7c15);
        }
        x
    }
}

fn main() {
    let scale: u64 = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(40);

    let total = Arc::new(Mutex::new(0u64));
    let names = Arc::new(RwLock::new(HashMap::new()));
    let (tx, rx) = mpsc::channel::<(u64, u64)>();
    let workers: Vec<_> = (0..4u64)
        .map(|w| {
            let (total, names, tx) = (total.clone(), names.clone(), tx.clone());
            thread::Builder::new()
                .name(format!("worker-{w}"))
                .spawn(move || {
                    for i in 0..scale {
                        let x = work::mix_block(w * 1000 + i, 200_000);
                        {
                            let mut t = total.lock().unwrap();
                            if i % 8 == 0 {
                                thread::sleep(Duration::from_micros(300));
                            }
                            *t = t.wrapping_add(x);
                        }
                        names.write().unwrap().insert(format!("{w}/{i}"), vec![x; 50]);
                        tx.send((w, x)).unwrap();
                    }
                })
                .unwrap()
        })
        .collect();
    drop(tx);
    let received: u64 = rx.iter().map(|(_, x)| x).fold(0, u64::wrapping_add);
    for w in workers {
        w.join().unwrap();
    }
    assert_eq!(received, *total.lock().unwrap());
    assert_eq!(names.read().unwrap().len() as u64, 4 * scale);

    let pair = Arc::new((Mutex::new(0u32), Condvar::new()));
    let other = pair.clone();
    let pong = thread::spawn(move || {
        let (m, c) = &*other;
        for _ in 0..1000 {
            let mut g = m.lock().unwrap();
            while *g % 2 == 0 {
                g = c.wait(g).unwrap();
            }
            *g += 1;
            c.notify_one();
        }
    });
    let (m, c) = &*pair;
    for _ in 0..1000 {
        let mut g = m.lock().unwrap();
        while *g % 2 == 1 {
            g = c.wait(g).unwrap();
        }
        *g += 1;
        c.notify_one();
    }
    pong.join().unwrap();
    assert_eq!(*m.lock().unwrap(), 2000);

    let start = Instant::now();
    let (guard, out) = c.wait_timeout_while(m.lock().unwrap(), Duration::from_millis(5), |_| true).unwrap();
    drop(guard);
    assert!(out.timed_out() && start.elapsed() >= Duration::from_millis(5));

    let parked = thread::spawn(|| thread::park());
    thread::sleep(Duration::from_millis(2));
    parked.thread().unpark();
    parked.join().unwrap();

    let caught = std::panic::catch_unwind(|| {
        std::panic::set_hook(Box::new(|_| {}));
        let _v = vec![1u8; 1000];
        panic!("expected");
    });
    assert!(caught.is_err());
    println!("checksum {received:016x}");
}
