// Package features contains only a test: the feature tables in README.md and docs/features.md are
// true. Each cell that says yes names a test that proves it.
package features
