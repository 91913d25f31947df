//go:build !tinygo

package nexthub

import "crypto/rand"

func systemRandom(p []byte) error {
	_, err := rand.Read(p)
	return err
}
