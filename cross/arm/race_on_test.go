//go:build race

package arm

const raceDetector = true
