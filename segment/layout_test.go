// layout_test.go keeps zlayout.go fresh.
package segment

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
)

func TestLayoutIsFresh(t *testing.T) {
	src, err := os.ReadFile("layout.h")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%x", sha256.Sum256(src)); got != layoutSHA256 {
		t.Errorf("layout.h changed since zlayout.go was made: run go generate ./segment")
	}
}

func TestRegenerate(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc to ask for the C layout")
	}
	out := filepath.Join(t.TempDir(), "zlayout.go")
	cmd := exec.Command("go", "run", "./gen", "-o", out)
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, msg)
	}
	want, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile("zlayout.go"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("zlayout.go is not what segment/gen makes (%v): run go generate ./segment", err)
	}
}

// TestCodecs fills each travelling struct with distinct bytes: what Decode reads, Encode writes back.
func TestCodecs(t *testing.T) {
	type codec interface {
		Decode([]byte) bool
		Encode([]byte)
	}
	for _, v := range []codec{
		&Rec{}, &Stack{}, &RecSample{}, &RecInterval{}, &RecRelease{}, &RecAlloc{}, &RecFree{}, &RecThread{},
		&RecName{}, &RecProc{}, &RecModule{}, &RecExit{}, &Hello{}, &Ready{},
	} {
		n := int(reflect.TypeOf(v).Elem().Size())
		in, out := make([]byte, n), make([]byte, n)
		for i := range in {
			in[i] = byte(i*7 + 1)
		}
		if v.Decode(in[:n-1]) {
			t.Errorf("%T: decoded from %d bytes", v, n-1)
		}
		if !v.Decode(in) {
			t.Errorf("%T: %d bytes refused", v, n)
		}
		if v.Encode(out); !bytes.Equal(in, out) {
			t.Errorf("%T: % x came back as % x", v, in, out)
		}
	}
}
