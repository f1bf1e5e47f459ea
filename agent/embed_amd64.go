package agent

import "embed"

// objects are those for programs of this machine, made by `go run ./agent/build`.
//
//go:embed hbagent_linux_amd64.so hbattached_linux_amd64.so hbdormant_linux_amd64.so stub_linux_386.so
var objects embed.FS
