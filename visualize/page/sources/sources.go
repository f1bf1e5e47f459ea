// Package sources tells whether the page's script was built of the TypeScript that lies next to it.
package sources

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"slices"
)

// Hash is that of everything in web/ that the script is built of.
func Hash(web fs.FS) (string, error) {
	var names []string
	for _, pattern := range []string{"*.ts", "*.json"} {
		found, err := fs.Glob(web, pattern)
		if err != nil {
			return "", err
		}
		names = append(names, found...)
	}
	slices.Sort(names)
	sum := sha256.New()
	for _, name := range names {
		body, err := fs.ReadFile(web, name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n", path.Base(name), len(body))
		sum.Write(body)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Banner is the line that the script begins with.
func Banner(hash string) string {
	return "/* generated of visualize/page/web by go generate; sources " + hash + " */\n"
}
