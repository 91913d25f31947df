package modems

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/memconn"
)

// A read gets as many bytes as it asks for, and leaves the rest. The board is told of data again
// when it has read all.
func TestAReadLeavesWhatItDoesNotAskFor(t *testing.T) {
	for prefix, want := range map[string][]string{
		"+QIRD: ": {"\r\nERROR\r\n", "\r\nERROR\r\n", "\r\n+QIRD: 2\r\nab\r\nOK\r\n",
			"\r\n+QIRD: 1\r\nc\r\nOK\r\n", "\r\n+QIRD: 0\r\n\r\nOK\r\n"},
		"+CIPRXGET: 2,": {"\r\nERROR\r\n", "\r\nERROR\r\n", "\r\n+CIPRXGET: 2,1,2,1\r\nab\r\nOK\r\n",
			"\r\n+CIPRXGET: 2,1,1,0\r\nc\r\nOK\r\n", "\r\n+IP ERROR: No data\r\n\r\nERROR\r\n"},
		"+CCHRECV: DATA,": {"\r\nERROR\r\n", "\r\nERROR\r\n",
			"\r\nOK\r\n\r\n+CCHRECV: DATA,1,2\r\nab\r\n+CCHRECV: 1,0\r\n",
			"\r\nOK\r\n\r\n+CCHRECV: DATA,1,1\r\nc\r\n+CCHRECV: 1,0\r\n",
			"\r\nOK\r\n\r\n+CCHRECV: DATA,1,0\r\n\r\n+CCHRECV: 1,0\r\n"},
	} {
		board, line := memconn.Pair("board", "modem")
		m := New(Config{Line: line})
		s := &socket{data: []byte("abc"), told: true}
		m.on, m.booted, m.sockets = true, true, map[int]*socket{1: s}
		for i, args := range [][]string{{"2", "9"}, {"1", "0"}, {"1", "2"}, {"1", "1"}, {"1", "9"}} {
			m.give(prefix, args)
			require.NoError(t, board.SetReadDeadline(time.Now().Add(time.Second)))
			said := make([]byte, 100)
			n, err := board.Read(said)
			require.NoError(t, err)
			require.Equal(t, want[i], string(said[:n]), "%s%v", prefix, args)
			require.Equal(t, i < 3, s.told)
		}
	}
}
