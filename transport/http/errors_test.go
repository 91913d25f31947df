package http

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/httpguard"
	"github.com/hubline-iot/hubline/internal/hubhttp"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/transport"
)

// Defect L8 of the Java SDK: over HTTPS it treats refused and reset connections and time-outs as
// permanent, and retries only an unknown host and a missing route. Here all of them are retryable,
// as over the other protocols.
func TestNetworkFailuresAreRetryable(t *testing.T) {
	dial := func(cause error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: cause} }
	for _, cause := range []error{
		dial(syscall.ECONNREFUSED), dial(syscall.ECONNRESET), dial(syscall.ENETUNREACH), dial(syscall.EHOSTUNREACH),
		dial(syscall.ETIMEDOUT),
		&net.DNSError{Err: "no such host", IsNotFound: true}, io.EOF, io.ErrUnexpectedEOF, syscall.EPIPE, net.ErrClosed,
		errors.New("http: server closed idle connection"), errors.New("whatever"),
	} {
		require.True(t, errfilter.Retryable(protocol.Error(cause)), "dial: %v", cause)
		e := lost(cause)
		require.True(t, errfilter.Retryable(e), "run: %v", cause)
		require.Equal(t, transport.ScopeConnection, e.Scope)
		require.Equal(t, transport.OpRun, e.Op)
	}
}

// A known code takes precedence over the status.
func TestTheCodeCountsBeforeTheStatus(t *testing.T) {
	header := http.Header{"Iothub-Errorcode": {"IotHubFailingOver"}}
	r := refusalOf(&hubhttp.Answer{Status: 404, Header: header}, false, time.Time{})
	require.Equal(t, transport.Unavailable, r.Kind)
	require.Equal(t, statuscode.Moment, r.About)
	require.Equal(t, 404012, r.cause.Code)

	e := r.operation(transport.OpSend)
	var se *transport.StatusError
	require.ErrorAs(t, error(e), &se)
	require.Equal(t, 404, se.Status)
	require.ErrorIs(t, error(e), transport.Unavailable)
	require.Equal(t, "http send: service unavailable: hub answered 404 (the hub is failing over), code 404012 "+
		"IotHubFailingOver",
		e.Error())
}

func TestErrorsShowNoSecretOfTheHub(t *testing.T) {
	const secret = "VGhpc0lzU2VjcmV0"
	for _, text := range []string{
		"token SharedAccessSignature sr=hub&sig=" + secret + "&se=1 is bad", "sig=" + secret, "SIG=" + secret + ", sig=" +
			secret,
		"İ sig=" + secret + "%3D&se=1",
	} {
		body, err := json.Marshal(map[string]string{"Message": text})
		require.NoError(t, err)
		r := refusalOf(&hubhttp.Answer{Status: 401, Body: body,
			Header: http.Header{"Iothub-Errorcode": {text}, "X-Ms-Request-Id": {text}}}, false, time.Time{})
		require.NotContains(t, r.connection(transport.OpDial).Error(), secret)
		require.NotContains(t, fmt.Sprintf("%+v", *r.cause), secret)
	}
	long := scrub.Peer(strings.Repeat("ä\n", scrub.MaxPeer))
	require.LessOrEqual(t, len(long), scrub.MaxPeer+len("..."))
	require.NotContains(t, long, "\n")
}

func TestRetryAfterInBothForms(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		retryAfter, date string
		want             time.Duration
	}{
		{"", "", 0},
		{"17", "", 17 * time.Second},
		{"Tue, 01 Jan 2030 00:01:30 GMT", "", 90 * time.Second},
		// our clock is wrong; the hub's Date is used
		{"Tue, 01 Jan 2030 12:01:30 GMT", "Tue, 01 Jan 2030 12:00:00 GMT", 90 * time.Second},
		{"Mon, 31 Dec 2029 00:00:00 GMT", "", 0},
		{"soon", "", 0},
		{"-5", "", 0},
	} {
		h := http.Header{}
		h.Set("Retry-After", row.retryAfter)
		h.Set("Date", row.date)
		require.Equal(t, row.want, refusalOf(&hubhttp.Answer{Status: 429, Header: h}, false, now).after, row)
	}
}

// A gateway in place of the hub, with a text but no code or id of one, ends neither the client nor
// a message.
func TestTheTextOfAnotherGatewayIsNoHubsRefusal(t *testing.T) {
	for _, status := range []int{400, 404, 410, 412} {
		r := refusalOf(&hubhttp.Answer{Status: status, Header: http.Header{"Content-Type": {"application/json"}},
			Body: []byte(`{"message":"no Route matched with those values"}`)}, false, time.Time{})
		require.Equal(t, hubhttp.NoHub, r.Verdict, status)
		require.ErrorContains(t, r.operation(transport.OpSend), "no Route matched")
	}
}

// The C# SDK takes 204 for a device that does not exist, and the Java SDK takes 200 for an
// acknowledgement.
func TestOnlyTheHubsAnswersAreSuccesses(t *testing.T) {
	page := http.Header{"Content-Type": {"text/html; charset=utf-8"}, "Etag": {`"5f3-62"`}}
	message := http.Header{"Etag": {`"6f1a"`}, "Iothub-Sequencenumber": {"7"}}
	for status := 200; status < 300; status++ {
		for _, header := range []http.Header{{}, page, message} {
			for _, poll := range []bool{false, true} {
				r := refusalOf(&hubhttp.Answer{Status: status, Header: header}, poll, time.Time{})
				if status == 204 || status == 200 && poll && header.Get("iothub-sequencenumber") != "" {
					require.Nil(t, r, status)
					continue
				}
				require.Equal(t, transport.Protocol, r.Kind, status)
				require.Equal(t, statuscode.Identity, r.About, status)
				require.ErrorContains(t, r.operation(transport.OpSend), "peer answered "+strconv.Itoa(status)+
					" (no hub answers so: a proxy or a captive portal may have answered in its place)")
			}
		}
	}
}

// Servers of other protocols, such as SSH and SMTP, speak first.
func TestAPeerThatSpeaksFirstIsNoHub(t *testing.T) {
	e := protocol.Error(fmt.Errorf("net/http: %w", httpguard.ErrUnsolicited))
	require.Equal(t, transport.Protocol, e.Kind)
	require.ErrorContains(t, e, "check host and port")
}
