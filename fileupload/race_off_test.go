//go:build !race

package fileupload_test

const raceEnabled = false
