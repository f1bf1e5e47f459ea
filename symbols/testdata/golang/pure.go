//go:build !usecgo

package main

func foreign() int { return 1 }
