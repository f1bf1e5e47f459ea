// The document: one file with its style, its script and, where it is exported, its data inside.

package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the page itself
	"encoding/base64"
	"html"
	"sync"
)

//go:generate go run ./gen

//go:embed web/index.html
var frame []byte

//go:embed web/style.css
var style []byte

//go:embed zpage.js
var script []byte

// hashes of what the document holds inside, as a Content-Security-Policy writes them: nothing else may run.
var hashes = sync.OnceValues(func() (string, string) {
	hash := func(b []byte) string {
		sum := sha256.Sum256(b)
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return hash(script), hash(style)
})

// policy is the document's Content-Security-Policy; connect is whom it may ask: 'self' or 'none'.
func policy(connect string) string {
	s, c := hashes()
	return "default-src 'none'; script-src " + s + "; style-src " + c + "; connect-src " + connect +
		"; img-src data:; base-uri 'none'; form-action 'none'"
}

// document is the page; data is nil where it is to ask the server. data must be base64: it stands in the document
// as it is.
func document(title string, data []byte) []byte {
	if title == "" {
		title = "hbtrace"
	}
	head := "<title>" + html.EscapeString(title) + "</title>"
	if data != nil {
		head += `<meta http-equiv="Content-Security-Policy" content="` + html.EscapeString(policy("'none'")) + `">`
	}
	var b bytes.Buffer
	b.Grow(len(frame) + len(style) + len(script) + len(data) + 1024)
	rest := frame
	for _, part := range []struct {
		mark string
		put  func()
	}{
		{"<!--head-->", func() {
			b.WriteString(head + "<style>")
			b.Write(style)
			b.WriteString("</style>")
		}},
		{"<!--data-->", func() {
			if data == nil {
				return
			}
			b.WriteString(`<script type="application/octet-stream" id="recording">`)
			b.Write(data)
			b.WriteString("</script>")
		}},
		{"<!--script-->", func() {
			b.WriteString("<script>")
			b.Write(script)
			b.WriteString("</script>")
		}},
	} {
		before, after, _ := bytes.Cut(rest, []byte(part.mark))
		b.Write(before)
		part.put()
		rest = after
	}
	b.Write(rest)
	return b.Bytes()
}
