package http_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	hubhttp "github.com/hubline-iot/hubline/transport/http"
)

const unsolicited = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: SharedAccessSignature sig=c2VjcmV0\r\n\r\n"

// The connection with the bytes is replaced, and the bytes are not logged.
func TestUnsolicitedBytesAreNotLogged(t *testing.T) {
	for name, answer := range map[string]string{
		"Content-Length":      "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\n{}",
		"chunked":             "HTTP/1.1 429 Too Many Requests\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"no content":          "HTTP/1.1 204 No Content\r\n\r\n",
		"after interim heads": "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
	} {
		t.Run("behind an answer: "+name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *scripted) {
				first := true
				h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
					if !first || !strings.HasSuffix(r.URL.Path, "/events") {
						return false
					}
					first = false
					c, _, err := w.(http.Hijacker).Hijack()
					require.NoError(t, err)
					t.Cleanup(func() { _ = c.Close() })
					_, err = c.Write([]byte(answer + unsolicited))
					require.NoError(t, err)
					return true
				}
				require.Empty(t, testkit.Logged(func() {
					r := h.start(t, h.options())
					for i, m := range numbered(3) {
						r.send(i, m)
						synctest.Wait()
						if err := r.results()[uint16(i)]; i > 0 || err != nil {
							require.Equal(t, i == 0, errors.Is(err, transport.Throttled), "%v", err)
						}
					}
					require.Equal(t, 2, h.dialed())
					r.close()
					synctest.Wait()
				}))
			})
		})
	}
	t.Run("idle", func(t *testing.T) {
		bubble(t, func(t *testing.T, h *scripted) {
			require.Empty(t, testkit.Logged(func() {
				r := h.start(t, h.options())
				synctest.Wait()
				h.each(func(c *memConn) { _, _ = c.Write([]byte(unsolicited)) })
				synctest.Wait()
				r.send(0, numbered(1)...)
				synctest.Wait()
				require.NoError(t, r.results()[0])
				require.Equal(t, 2, h.dialed())
				r.close()
				synctest.Wait()
			}))
		})
	})
	t.Run("before the first request", func(t *testing.T) {
		bubble(t, func(t *testing.T, h *scripted) {
			o := h.options()
			o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := h.network.DialContext(ctx, network, addr)
				synctest.Wait()
				h.each(func(c *memConn) { _, _ = c.Write([]byte("220 mail.example.test ESMTP\r\n")) })
				return c, err
			}
			require.Empty(t, testkit.Logged(func() {
				_, err := h.dial(t, hubhttp.New(o), h.creds(goodKey))
				require.ErrorIs(t, err, transport.Protocol)
				require.ErrorContains(t, err, "check host and port")
				synctest.Wait()
			}))
		})
	})
}
