package agent

import "embed"

// objects are those for programs of this machine, made by `go run ./agent/build`. There is none for 32-bit programs: their loader
// says that it cannot preload the file, and runs on.
//
//go:embed hbagent_linux_arm64.so
var objects embed.FS
