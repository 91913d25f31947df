//go:build !tinygo

package mqttwire

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/transport"
)

// The table in docs/mqtt5.md says what this package does.
func TestTheDocumentedReasonCodes(t *testing.T) {
	page, err := os.ReadFile("../../docs/mqtt5.md")
	require.NoError(t, err)
	var rows []string
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| 0x") {
			rows = append(rows, strings.TrimSpace(line))
		}
	}
	require.Equal(t, documented(), rows)
}

// documented returns the rows: code, text, and the Kind in each packet, in italics if it is
// retried.
func documented() (rows []string) {
	for code := 0x80; code < 0x80+len(reasons); code++ {
		row := fmt.Sprintf("| 0x%02X %s |", code, reasons[code-0x80].text)
		none := true
		for i, packet := range []string{PacketConnack, PacketPuback, PacketSuback, PacketDisconnect} {
			cell := "–"
			if strings.Contains(strings.ToUpper(failures[byte(code)]), "CPSD"[i:i+1]) {
				none = false
				kind := ReasonMeaning(packet, byte(code)).Kind
				cell = kindNames[kind]
				e := Ended(&ReasonError{Packet: packet, Code: byte(code)})
				if errfilter.Retryable(e) {
					cell = "*" + cell + "*"
				}
			}
			row += " " + cell + " |"
		}
		if !none {
			rows = append(rows, row)
		}
	}
	return rows
}

var kindNames = map[transport.Kind]string{transport.Unavailable: "Unavailable", transport.Unauthorized: "Unauthorized",
	transport.Throttled: "Throttled", transport.Unsupported: "Unsupported", transport.Forbidden: "Forbidden",
	transport.Invalid: "Invalid", transport.Quota: "Quota", transport.TooLarge: "TooLarge", transport.Protocol: "Protocol",
	transport.NotFound: "NotFound", transport.Timeout: "Timeout"}
