package update

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/hubline-iot/hubline/transport"
)

// Manifest describes an image. Its text has these lines, in this order, each with a line feed:
//
//	hubline-update 1
//	model roof-sensor
//	version 7
//	size 262144
//	sha256 (64 lower-case hexadecimal digits)
//	signature (base64)
//
// The signature is over all bytes before its line.
type Manifest struct {
	// Model is the kind of board that the image is for: 1 to 64 ASCII characters without spaces.
	Model string
	Image
}

const (
	firstLine    = "hubline-update 1\n"
	maxManifest  = 512
	maxModel     = 64
	maxSignature = 256
	// MaxSize is the largest size of an image.
	MaxSize = maxImage
)

// AppendManifest appends the text of m up to its signature line: the bytes to sign.
func AppendManifest(b []byte, m *Manifest) ([]byte, error) {
	switch {
	case !validModel(m.Model):
		return nil, invalid("Manifest.Model: give 1 to 64 ASCII characters without spaces")
	case m.Version == 0:
		return nil, invalid("Manifest.Version is 0; versions begin with 1")
	case m.Size <= 0 || m.Size > MaxSize:
		return nil, invalid("Manifest.Size is out of range; give 1 to 2^30")
	}
	b = append(b, firstLine+"model "+m.Model+"\nversion "...)
	b = strconv.AppendUint(b, uint64(m.Version), 10)
	b = append(b, "\nsize "...)
	b = strconv.AppendInt(b, m.Size, 10)
	b = append(b, "\nsha256 "...)
	for _, x := range m.SHA256 {
		b = append(b, "0123456789abcdef"[x>>4], "0123456789abcdef"[x&15])
	}
	return append(b, '\n'), nil
}

// AppendSignature appends the signature line.
func AppendSignature(b, signature []byte) []byte {
	b = append(b, "signature "...)
	return append(base64.StdEncoding.AppendEncode(b, signature), '\n')
}

// ParseManifest reads a manifest. It does not verify the signature, which is over signed. The error
// names the line.
func ParseManifest(text []byte) (m Manifest, signed, signature []byte, err error) {
	if len(text) > maxManifest {
		return Manifest{}, nil, nil, badLine("longer than 512 bytes")
	}
	rest, ok := bytes.CutPrefix(text, []byte(firstLine))
	if !ok {
		return Manifest{}, nil, nil, badLine("the first line is not hubline-update 1")
	}
	bad := ""
	line := func(name string) string {
		value, after, ok := bytes.Cut(rest, []byte{'\n'})
		value, named := bytes.CutPrefix(value, []byte(name+" "))
		if bad == "" && (!ok || !named) {
			bad = name
		}
		rest = after
		return string(value)
	}
	number := func(name string, most uint64) uint64 {
		digits := line(name)
		n, ok := decimal(digits, most)
		if bad == "" && !ok {
			bad = name
		}
		return n
	}
	m.Model = line("model")
	if bad == "" && !validModel(m.Model) {
		bad = "model"
	}
	m.Version = uint32(number("version", 1<<32-1))
	m.Size = int64(number("size", MaxSize))
	if sum := line("sha256"); !hexadecimal(m.SHA256[:], sum) && bad == "" {
		bad = "sha256"
	}
	signed = text[:len(text)-len(rest)]
	signature, wrong := base64.StdEncoding.Strict().DecodeString(line("signature"))
	if bad == "" && (wrong != nil || len(signature) == 0 || len(signature) > maxSignature || len(rest) > 0) {
		bad = "signature"
	}
	if bad != "" {
		return Manifest{}, nil, nil, badLine("line " + bad + " is missing or malformed")
	}
	return m, signed, signature, nil
}

func badLine(text string) error { return fault(transport.Invalid, "manifest: "+text) }

// decimal reads a number from 1 to most, without leading zeros.
func decimal(s string, most uint64) (n uint64, ok bool) {
	if s == "" || s[0] == '0' || len(s) > 10 {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + uint64(s[i]-'0')
	}
	return n, n <= most
}

// hexadecimal fills p with exactly its digits, in lower case.
func hexadecimal(p []byte, digits string) bool {
	if len(digits) != 2*len(p) {
		return false
	}
	for i := range len(digits) {
		value := strings.IndexByte("0123456789abcdef", digits[i])
		if value < 0 {
			return false
		}
		p[i/2] = p[i/2]<<4 | byte(value)
	}
	return true
}

func validModel(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && len(s) <= maxModel
}
