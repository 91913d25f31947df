package dialer

import (
	"crypto/rand"
	"encoding/hex"
)

// NewUUID makes a UUID of version 4 (RFC 9562), by which a service's support finds a request.
func NewUUID() string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // it never fails
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	h := hex.EncodeToString(u[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
