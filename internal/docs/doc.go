// Package docs contains only tests: they compile the Go code in the documents of this module, run
// their programs and compare the output.
package docs
