package main

import (
	"embed"
	"io/fs"
	"net/http"
	"strings"
)

// pageFiles are the page for people: plain HTML, CSS and JavaScript that use the control API. They
// need no other site.
//
//go:embed page
var pageFiles embed.FS

// pagePolicy lets a browser load only files of this server, and run no script but those: none in
// the HTML, and none that a text from a device could become.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// pageFolder is the path of all files but the first.
const pageFolder = "/page/"

// protect sets headers against pages of other sites. All answers need them, those of the API too.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
}

// wantsPage reports whether a request is for the page: for one of its files, or from a browser for
// /, which lists the API to programs.
func wantsPage(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	return strings.HasPrefix(r.URL.Path, pageFolder) ||
		r.URL.Path == "/" && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// pageHandler serves the page.
func pageHandler() http.Handler {
	static, err := fs.Sub(pageFiles, "page")
	if err != nil {
		panic("the page: " + err.Error()) // the files are part of the program
	}
	server := http.StripPrefix(pageFolder, http.FileServerFS(static))
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
