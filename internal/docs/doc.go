// Package docs contains only tests: they compile the Go code in the documents of this module, run
// their programs and compare the output, and check that each cell of the feature tables names a
// test that exists.
package docs
