package admin

import (
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
)

// A page serves the operator's page. Its files are the same for everybody and have no data of the server, so they
// need no token.
type page struct{ files fs.FS }

// serves reports whether a request without a route of the API is one for the page: a browser that opens a view, or
// an asset.
func (p page) serves(r *http.Request) bool {
	if p.files == nil || changes(r) || strings.HasPrefix(r.URL.Path, "/api/") {
		return false
	}
	return isAsset(r) || strings.Contains(r.Header.Get("Accept"), "text/html")
}

func isAsset(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/assets/") }

// ServeHTTP implements [http.Handler]. The page finds its view in the URL, so each view has the same document.
func (p page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := "index.html"
	if isAsset(r) {
		name = strings.TrimPrefix(r.URL.Path, "/")
	}
	packed, err := fs.ReadFile(p.files, name+".gz")
	if err != nil {
		refuse(w, missing("", "path not found", ""))
		return
	}
	headers(w, mime.TypeByExtension(path.Ext(name)))
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Vary", "Accept, Accept-Encoding")
	if isAsset(r) { // the name of an asset has a hash of its content
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed) //nolint:gosec // the file is a part of the program
		return
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err == nil {
		_, _ = io.Copy(w, unpacked) //nolint:gosec // the file is a part of the program
	}
}
