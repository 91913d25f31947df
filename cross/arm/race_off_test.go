//go:build !race

package arm

const raceDetector = false
