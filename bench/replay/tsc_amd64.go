package main

// cycles reads the time-stamp counter.
func cycles() uint64
