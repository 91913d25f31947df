// Package docs holds no code, only tests: they compile the Go code in the documents of this module,
// run their programs and compare what these print.
package docs
