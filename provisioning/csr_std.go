//go:build !tinygo

package provisioning

import (
	"encoding/base64"

	"github.com/hubline-iot/hubline/internal/jsonscan"
)

const (
	// maxCSR is the service's limit for a signing request in base64.
	maxCSR = 8 << 10
	// maxChain bounds an issued certificate chain.
	maxChain = 16
)

// appendCSR appends the signing request, if there is one, to the body of a register.
func (c *Client) appendCSR(b []byte) ([]byte, error) {
	csr := c.opt.CSR
	if len(csr) == 0 {
		return b, nil
	}
	text := base64.StdEncoding.EncodeToString(csr)
	switch {
	case csr[0] == '-':
		return nil, invalid("options: CSR is PEM; give the DER inside")
	case len(text) > maxCSR:
		return nil, tooLarge("CSR", len(text), maxCSR)
	}
	return append(append(append(b, `,"csr":"`...), text...), '"'), nil
}

// readChain reads the issued certificate chain of a registration state, if there is one.
func readChain(state []byte) ([][]byte, error) {
	raw := jsonscan.Value(state, "issuedCertificateChain")
	if raw == nil {
		return nil, nil
	}
	var chain [][]byte
	damaged := false
	ok := eachText(raw, func(text string) {
		der, err := base64.StdEncoding.DecodeString(text)
		damaged = damaged || err != nil || len(der) == 0
		chain = append(chain, der)
	})
	if !ok || damaged || len(chain) > maxChain {
		return nil, violation("the issued certificate chain is malformed")
	}
	return chain, nil
}

// eachText calls f with the text of each string in an array of strings. It returns false if raw is
// something else.
func eachText(raw []byte, f func(text string)) bool {
	if len(raw) < 2 || raw[0] != '[' {
		return false
	}
	for i := 1; i < len(raw); {
		switch raw[i] {
		case ' ', '\t', '\n', '\r', ',':
			i++
		case ']':
			return true
		case '"':
			from := i
			for i++; raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
			i++
			f(jsonscan.Text(raw[from:i]))
		default:
			return false
		}
	}
	return false
}
