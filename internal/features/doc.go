// Package features holds no code, only a test: the tables of features, in README.md and
// docs/features.md, name what is there. Each cell that says yes names a test that stands behind it.
package features
