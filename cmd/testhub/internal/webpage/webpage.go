// Package webpage has the page of testhub for people: plain HTML, CSS and JavaScript that use the
// control API. The files are in the binary and need no other site.
package webpage

import (
	"embed"
	"io/fs"
	"net/http"
	"strings"
)

//go:embed static
var files embed.FS

// policy lets a browser load only files of this server, and run no script but those: none in the
// HTML, and none that a text from a device could become.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// folder is the path of all files but the first.
const folder = "/page/"

// Protect sets headers against pages of other sites. All answers need them, those of the API too.
func Protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
}

// Wants reports whether a request is for the page: for one of its files, or from a browser for /,
// which lists the API to programs.
func Wants(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	return strings.HasPrefix(r.URL.Path, folder) ||
		r.URL.Path == "/" && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// Handler serves the page.
func Handler() http.Handler {
	static, err := fs.Sub(files, "static")
	if err != nil {
		panic("webpage: " + err.Error()) // the files are part of the program
	}
	server := http.StripPrefix(folder, http.FileServerFS(static))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache") // another version of testhub may have the same address
		switch {
		case r.URL.Path == "/":
			w.Header().Set("Vary", "Accept")
			http.ServeFileFS(w, r, static, "page.html")
		case strings.HasSuffix(r.URL.Path, "/"):
			http.NotFound(w, r) // no list of files
		default:
			server.ServeHTTP(w, r)
		}
	})
}
