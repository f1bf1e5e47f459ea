// Command hello starts a goroutine, waits for it, and says so.
package main

import "os"

func main() {
	done := make(chan struct{})
	go func() {
		os.Stdout.WriteString("hello\n")
		close(done)
	}()
	<-done
	os.Exit(5)
}
