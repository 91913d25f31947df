package board

import (
	"context"
	"crypto/sha256"
)

// Signer returns a transport.Credentials.Sign for a key in RAM: HMAC-SHA256 (RFC 2104). It is equal
// to transport.SharedKey without crypto/hmac, which costs 9 KB of flash on boards. A board with a
// secure element uses that instead.
func Signer(key []byte) func(ctx context.Context, text []byte) ([]byte, error) {
	if len(key) > sha256.BlockSize {
		sum := sha256.Sum256(key)
		key = sum[:]
	}
	var padded [sha256.BlockSize]byte
	copy(padded[:], key)
	return func(_ context.Context, text []byte) ([]byte, error) {
		inner := sha256.Sum256(append(mix(&padded, 0x36, len(text)), text...))
		outer := sha256.Sum256(append(mix(&padded, 0x5c, len(inner)), inner[:]...))
		return outer[:], nil
	}
}

// mix returns the block XORed with pad, with capacity for more bytes.
func mix(block *[sha256.BlockSize]byte, pad byte, more int) []byte {
	b := make([]byte, len(block), len(block)+more)
	for i := range b {
		b[i] = block[i] ^ pad
	}
	return b
}

// Key decodes a device's key from base64, as a hub shows it; nil if it is invalid. Package
// encoding/base64 would cost 700 bytes more of flash.
func Key(text string) []byte {
	for len(text) > 0 && text[len(text)-1] == '=' {
		text = text[:len(text)-1]
	}
	var key []byte
	bits, have := uint32(0), 0
	for i := range len(text) {
		v := uint32(0)
		switch c := text[i]; {
		case 'A' <= c && c <= 'Z':
			v = uint32(c - 'A')
		case 'a' <= c && c <= 'z':
			v = uint32(c-'a') + 26
		case '0' <= c && c <= '9':
			v = uint32(c-'0') + 52
		case c == '+':
			v = 62
		case c == '/':
			v = 63
		default:
			return nil
		}
		bits = bits<<6 | v
		if have += 6; have >= 8 {
			have -= 8
			key = append(key, byte(bits>>have))
		}
	}
	return key
}
