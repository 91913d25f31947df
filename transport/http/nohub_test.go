package http_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
	hubhttp "github.com/hubline-iot/hubline/transport/http"
)

// html is the type of a page of an intercepting proxy or a captive portal.
const html = "text/html; charset=utf-8"

// proxied answers without anything of a hub.
func proxied(w http.ResponseWriter, status int, contentType string) {
	w.Header().Del("x-ms-request-id")
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("ETag", `"5f3-62"`)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "<html>sign in to the network</html>")
}

func requireNoHub(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, transport.Protocol)
	require.ErrorContains(t, err, "a proxy or a captive portal may have answered in its place")
}

// A page, or the refusal of a web server that knows no such path, does not prove the identity.
func TestAPageDoesNotProveTheIdentity(t *testing.T) {
	for _, module := range []string{"", "m"} {
		for contentType, statuses := range map[string][]int{
			html: {200, 400, 401, 403, 404, 405, 412}, "text/plain": {400, 404, 412},
		} {
			for _, status := range statuses {
				bubble(t, func(t *testing.T, h *scripted) {
					h.module = module
					h.answer = func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
						proxied(w, status, contentType)
						return true
					}
					_, err := h.dial(t, hubhttp.New(h.options()), h.creds(goodKey))
					requireNoHub(t, err)
				})
			}
		}
	}
}

// The messages stay without a result, so the client sends them again on the next connection, and a
// queue keeps them. A refusal without anything of a hub says nothing about the messages, whatever
// its type, but a proxy's limit for the size of one does.
func TestAPageIsNoResultOfTelemetry(t *testing.T) {
	refusals := []int{400, 409, 412, 413, 415, 422, 428}
	for contentType, statuses := range map[string][]int{
		html:         {200, 201, 202, 205, 206, 400, 405, 409, 412, 415, 422},
		"text/plain": refusals, "application/json": refusals,
	} {
		for _, status := range statuses {
			for _, n := range []int{1, 3} {
				bubble(t, func(t *testing.T, h *scripted) {
					h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
						if !strings.HasSuffix(r.URL.Path, "/events") {
							return false
						}
						proxied(w, status, contentType)
						return true
					}
					r := h.start(t, h.options())
					r.send(0, numbered(n)...)
					if status == http.StatusRequestEntityTooLarge {
						synctest.Wait()
						require.Len(t, r.results(), n)
						require.ErrorIs(t, r.results()[0], transport.TooLarge)
						return
					}
					requireNoHub(t, r.requireLoss(transport.Protocol))
					require.Empty(t, r.results())
				})
			}
		}
	}
}

// A page may have an ETag, and a hub's message never lacks one.
func TestAPageIsNoCloudToDeviceMessage(t *testing.T) {
	for _, header := range []http.Header{
		{"Etag": {`"5f3-62"`}}, {"Iothub-Sequencenumber": {"1"}},
		{"Iothub-Sequencenumber": {"1"}, "Etag": {`""`}}, {"Iothub-Sequencenumber": {"1"}, "Etag": {`W/""`}},
	} {
		bubble(t, func(t *testing.T, h *scripted) {
			h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
				if r.Method != http.MethodGet {
					return false
				}
				for name, values := range header {
					w.Header()[name] = values
				}
				_, _ = io.WriteString(w, "sign in to the network")
				return true
			}
			r := h.start(t, h.polling(time.Minute))
			r.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.FeatureMessages})
			requireNoHub(t, r.requireLoss(transport.Protocol))
			require.Empty(t, r.bodies())
		})
	}
}

// An accept that a page answered is sent again with the message's next delivery.
func TestAPageSettlesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		portal := true
		h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if r.Method != http.MethodDelete || !portal {
				return false
			}
			portal = false
			proxied(w, http.StatusOK, html)
			return true
		}
		h.Deliver("a")
		r := h.start(t, h.polling(time.Minute))
		require.NoError(t, r.subscribe())
		r.settle(r.delivered()[0].ref, transport.OutcomeAccept)
		synctest.Wait()
		require.Empty(t, h.verdicts())
		time.Sleep(3 * time.Minute)
		require.Equal(t, []string{"complete 1"}, h.verdicts())
		require.Equal(t, []string{"a"}, r.bodies())
	})
}
