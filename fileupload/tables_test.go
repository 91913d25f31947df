package fileupload

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/hubhttp"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
)

func answered(status int, body string, header ...string) *answer {
	a := &answer{status: status, header: http.Header{}, body: []byte(body)}
	for i := 0; i < len(header); i += 2 {
		a.header.Set(header[i], header[i+1])
	}
	return a
}

// The codes in the service's documents that an uploader may meet: their Kinds, and whether the
// request is retried.
func TestMeaningsOfAnswers(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		status int
		code   string
		kind   transport.Kind
	}{
		{400, "InvalidHeaderValue", transport.Invalid},
		{400, "InvalidMd5", transport.Invalid},
		{400, "Md5Mismatch", transport.Protocol},
		{400, "Crc64Mismatch", transport.Protocol},
		{400, "InvalidBlobOrBlock", transport.Conflict},
		{400, "InvalidBlockId", transport.Invalid},
		{400, "InvalidBlockList", transport.Conflict},
		{400, "BlockListTooLong", transport.TooLarge},
		{400, "OutOfRangeInput", transport.Invalid},
		{400, "MissingRequiredHeader", transport.Invalid},
		{401, "NoAuthenticationInformation", transport.Unauthorized},
		{401, "InvalidAuthenticationInfo", transport.Unauthorized},
		{403, "AuthenticationFailed", transport.Unauthorized},
		{403, "AuthorizationFailure", transport.Forbidden},
		{403, "AuthorizationPermissionMismatch", transport.Forbidden},
		{403, "AuthorizationSourceIPMismatch", transport.Forbidden},
		{403, "AccountIsDisabled", transport.Forbidden},
		{403, "InsufficientAccountPermissions", transport.Forbidden},
		{404, "ContainerNotFound", transport.NotFound},
		{404, "ResourceNotFound", transport.NotFound},
		{405, "UnsupportedHttpVerb", transport.Unsupported},
		{409, "AccountBeingCreated", transport.Unavailable},
		{409, "BlobArchived", transport.Conflict},
		{409, "BlobImmutableDueToPolicy", transport.Conflict},
		{409, "BlockCountExceedsLimit", transport.TooLarge},
		{409, "ContainerBeingDeleted", transport.NotFound},
		{409, "InvalidBlobType", transport.Conflict},
		{409, "SystemInUse", transport.Unavailable},
		{411, "MissingContentLengthHeader", transport.Protocol},
		{412, "LeaseIdMissing", transport.Conflict},
		{412, "ConditionNotMet", transport.Conflict},
		{413, "RequestBodyTooLarge", transport.TooLarge},
		{429, "", transport.Throttled},
		{500, "InternalError", transport.Unavailable},
		{500, "OperationTimedOut", transport.Timeout},
		{503, "ServerBusy", transport.Throttled},
		{503, "", transport.Unavailable},
		{200, "", transport.Protocol},
		{307, "", transport.Protocol},
		{418, "", transport.Unknown},
		{599, "", transport.Unavailable},
		{504, "", transport.Timeout},
		{600, "", transport.Protocol},
	} {
		byHeader := storageRefusal(answered(c.status, "", "x-ms-error-code", c.code), &grant{}, now)
		require.Equal(t, c.kind, byHeader.Kind, "%d %s", c.status, c.code)
		byBody := storageRefusal(answered(c.status, `<?xml version="1.0" encoding="utf-8"?><Error><Code>`+c.code+
			`</Code><Message>m
RequestId:r</Message></Error>`), &grant{}, now)
		require.Equal(t, c.kind, byBody.Kind, "%d %s", c.status, c.code)
		e, ok := errors.AsType[*transport.StatusError](byBody)
		require.True(t, ok)
		require.Equal(t, c.status, e.HTTPStatusCode())
		require.Equal(t, c.code, e.Name)
		require.Equal(t, "m", e.Message)
		require.Equal(t, transport.ScopeOperation, byBody.Scope)
	}
	for _, c := range []struct {
		code  string
		kind  transport.Kind
		retry bool
	}{
		{"400004", transport.Invalid, false},
		{"400014", transport.Unsupported, false},
		{"400015", transport.Conflict, false},
		{"400016", transport.Conflict, false},
		{"400019", transport.Invalid, false},
		{"400020", transport.Unsupported, false},
		{"400021", transport.Unavailable, true},
		{"400024", transport.Timeout, true},
		{"401001", transport.NotFound, false},
		{"401003", transport.Unauthorized, false},
		{"403002", transport.Quota, true},
		{"403006", transport.Quota, true},
		{"403000", transport.Forbidden, false},
		{"403001", transport.Forbidden, false},
		{"403012", transport.Forbidden, false},
		{"403999", transport.Quota, true},
		{"404001", transport.NotFound, false},
		{"404012", transport.Unavailable, true},
		{"429001", transport.Throttled, true},
		{"429005", transport.Throttled, true},
		{"500001", transport.Unavailable, true},
		{"503003", transport.Unavailable, true},
		{"504101", transport.Timeout, true},
	} {
		status := int(c.code[0]-'0')*100 + int(c.code[1]-'0')*10 + int(c.code[2]-'0')
		e := hubRefusal(answered(status, `{"Message":"{\"errorCode\":`+c.code+`,\"message\":\"why\"}"}`, "Retry-After", "7"),
			now)
		require.Equal(t, c.kind, e.Kind, c.code)
		require.Equal(t, c.retry, errfilter.Retryable(e), c.code)
		require.Equal(t, 7*time.Second, e.RetryAfter)
		require.ErrorContains(t, e, ", code "+c.code)
		require.ErrorContains(t, e, ": why")
	}
	for name, code := range map[string]int{
		"DefaultStorageEndpointNotConfigured": 400014, "InvalidFileUploadCorrelationId": correlationInvalid,
		"ExpiredFileUploadCorrelationId":             correlationExpired,
		"DeviceMaximumActiveFileUploadLimitExceeded": 403006, "InvalidStorageEndpointOrBlob": 400020, "New": 0,
	} {
		for _, e := range []*transport.Error{
			hubRefusal(answered(400, `{"Message":"ErrorCode:`+name+`;text"}`), now),
			hubRefusal(answered(400, "", "iothub-errorcode", name), now),
		} {
			s, _ := errors.AsType[*transport.StatusError](e)
			require.Equal(t, code, s.Code)
			require.Equal(t, name, s.Name)
		}
	}
}

// Each status and each code of a hub has the same meaning here as for a transport, except for the
// few codes with a special meaning for uploads.
func TestAHubsAnswersMeanTheSameEverywhere(t *testing.T) {
	for status := 100; status < 600; status++ {
		want := hubhttp.VerdictOfStatus(status)
		require.Equal(t, want.Kind, hubRefusal(answered(status, ""), time.Now()).Kind, status)
		if status == http.StatusForbidden {
			want.Kind = transport.Forbidden
		}
		if status == http.StatusCreated {
			continue // storage's only success
		}
		require.Equal(t, want.Kind, storageRefusal(answered(status, ""), &grant{}, time.Now()).Kind, status)
	}
	own := 0
	for code := 400_000; code < 600_000; code++ {
		body := `{"Message":"{\"errorCode\":` + strconv.Itoa(code) + `}"}`
		said := transport.StatusError{Status: code / 1000, Code: code}
		e := hubRefusal(answered(code/1000, body), time.Now())
		if m, is := hubTable[code]; is && m.kind != hubhttp.VerdictOf(&said).Kind {
			own++
			require.Equal(t, m.kind, e.Kind, code)
			continue
		}
		require.Equal(t, hubhttp.VerdictOf(&said).Kind, e.Kind, code)
	}
	require.Equal(t, 5, own, "400014 to 400017 and 400020")
}

func TestNoTextOfAPeerShowsASignature(t *testing.T) {
	now := time.Now()
	g := &grant{signature: "sv=1&sig=c2VjcmV0%2B&se=2"}
	for _, secret := range []string{"the signature c2VjcmV0+ or c2VjcmV0%2B is wrong",
		"PUT /c/b?sv=1&sig=c2VjcmV0 HTTP/1.1", "SIG=c2VjcmV0", "token SharedAccessSignature sr=a&sig=c2VjcmV0"} {
		for _, e := range []error{
			storageRefusal(answered(403, "<Error><Code>"+strings.ReplaceAll(secret, "&", "&amp;")+"</Code><Message>"+
				strings.ReplaceAll(secret,
					"&", "&amp;")+"</Message></Error>"), g, now),
			storageRefusal(answered(403, "", "x-ms-error-code", secret, "x-ms-request-id", secret), g, now),
			withoutSecrets(protocol.Error(errors.New("malformed HTTP response "+secret)), g),
		} {
			require.NotContains(t, e.Error(), "c2VjcmV0")
			s, ok := errors.AsType[*transport.StatusError](e)
			if !ok {
				continue
			}
			require.NotContains(t, s.Name+s.Message+s.TrackingID, "c2VjcmV0")
		}
	}
	for _, secret := range []string{"PUT /c/b?sv=1&sig=c2VjcmV0 HTTP/1.1", "SIG=c2VjcmV0",
		"token SharedAccessSignature sr=a&sig=c2VjcmV0"} {
		require.NotContains(t, hubRefusal(answered(403, `{"Message":"`+secret+`"}`), now).Error(), "c2VjcmV0")
		require.NotContains(t, hubRefusal(answered(403, secret, "iothub-errorcode", secret), now).Error(), "c2VjcmV0")
	}
	require.Less(t, len(shorten(strings.Repeat("a", 1<<20))), 2000)
	require.Equal(t, `a\x00b`, shorten("  a\x00b \nc"))
	g = &grant{container: "c", blob: "d/b", host: "h", signature: "sig=c2VjcmV0"}
	require.Equal(t, "c/d/b", g.String())
	require.Equal(t, "c/d/b", g.GoString())
	require.Equal(t, "https://h/c/d/b", g.address("https"))
}

func TestBlocksGrowSoThatFilesFit(t *testing.T) {
	p := plan{1 << 20, 16 << 20, maxBlocks}
	for n, want := range map[int]int64{0: 1, 9_999: 1, 10_000: 2, 19_999: 2, 20_000: 4, 30_000: 8, 40_000: 16,
		49_999: 16} {
		require.Equal(t, want<<20, p.size(n), "block %d", n)
	}
	require.Equal(t, int64(310_000)<<20, p.capacity())
	require.Equal(t, int64(maxBlocks)<<20, plan{1 << 20, 1 << 20, maxBlocks}.capacity())
	require.Equal(t, int64(3<<20), plan{1 << 20, 3 << 20, maxBlocks}.size(45_000))
	require.Equal(t, int64(maxBlocks)*maxBlock, plan{maxBlock, maxBlock, maxBlocks}.capacity(), "190.7 TiB")

	ids := map[string]bool{}
	for _, upload := range []uint64{0, 1, 1 << 63} {
		for _, n := range []int{0, 1, 62, 63, maxBlocks - 1} {
			id := blockID(upload, n)
			require.Len(t, id, 16, "all have the same length")
			ids[id] = true
		}
	}
	require.Len(t, ids, 15)
}

func TestASourceIsReadToItsEnd(t *testing.T) {
	for _, size := range []int64{10, -1} {
		s := source{r: iotest.HalfReader(strings.NewReader("0123456789")), size: size, sum: new(counter)}
		var got []byte
		for {
			buf := make([]byte, 4)
			n, last, err := s.fill(t.Context(), buf)
			require.NoError(t, err)
			got = append(got, buf[:n]...)
			if last {
				break
			}
		}
		require.Equal(t, "0123456789", string(got))
		require.Equal(t, int64(10), s.read)
		require.Equal(t, "0123456789", s.sum.(*counter).String())
	}
	// An error with a Kind keeps it.
	s := source{r: iotest.ErrReader(transport.Unavailable), size: -1, sum: new(counter)}
	_, _, err := s.fill(t.Context(), make([]byte, 4))
	require.ErrorIs(t, err, transport.Unavailable)
	// A reader that brings nothing fails.
	s = source{r: readerFunc(func([]byte) (int, error) { return 0, nil }), size: -1, sum: new(counter)}
	_, _, err = s.fill(t.Context(), make([]byte, 4))
	require.ErrorIs(t, err, io.ErrNoProgress)
	// Between two reads the end of the context counts.
	ctx, cancel := context.WithCancel(t.Context())
	s.r = readerFunc(func([]byte) (int, error) { cancel(); return 1, nil })
	n, _, err := s.fill(ctx, make([]byte, 4))
	require.ErrorIs(t, err, transport.Cancelled)
	require.Equal(t, 1, n)
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A counter is a hash that records its input.
type counter struct{ bytes.Buffer }

func (*counter) Sum(b []byte) []byte { return b }
func (*counter) Size() int           { return 0 }
func (*counter) BlockSize() int      { return 1 }

func TestARevokedPayloadIsNotRead(t *testing.T) {
	w := newWatch(time.Hour, time.Hour, func() {})
	defer w.stop()
	p := &payload{data: []byte("0123456789"), chunk: 100, watch: w}
	first, second := p.reader(), p.reader()
	all, err := io.ReadAll(first)
	require.NoError(t, err)
	require.Equal(t, "0123456789", string(all))
	var b [4]byte
	n, err := second.Read(b[:])
	require.NoError(t, err)
	require.Equal(t, "0123", string(b[:n]))
	p.revoke()
	_, err = second.Read(b[:])
	require.Error(t, err)
}

func TestTheLifeOfAURIIsMeasuredByTheServicesOwnClock(t *testing.T) {
	asked := time.Now()
	served := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC) // the device's clock differs
	for se, life := range map[string]time.Duration{
		"2031-01-01T01:00:00Z": time.Hour, "2031-01-01T01:00:00.0000000Z": time.Hour, "2031-01-01T01:00Z": time.Hour,
		"2031-01-02":           24 * time.Hour,
		"2030-12-31T00:00:00Z": 0, "": 0, "soon": 0,
	} {
		var g grant
		g.setExpiry(se, asked, served)
		if life == 0 {
			require.True(t, g.renewAt.IsZero(), se)
			continue
		}
		require.Equal(t, asked.Add(life), g.expires, se)
		require.Equal(t, min(life/10, 5*time.Minute), g.expires.Sub(g.renewAt), se)
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add(400, `{"Message":"{\"errorCode\":400004,\"message\":\"x\"}"}`, "a")
	f.Add(403, `<Error><Code>AuthenticationFailed</Code><Message>x</Message></Error>`, "b")
	const most = scrub.MaxPeer + len("...")
	f.Fuzz(func(t *testing.T, status int, body, header string) {
		for _, e := range []*transport.Error{
			hubRefusal(answered(status, body, "iothub-errorcode", header), time.Now()),
			storageRefusal(answered(status, body, "x-ms-error-code", header), &grant{}, time.Now()),
		} {
			s, ok := errors.AsType[*transport.StatusError](e)
			if !ok || s.Status != status || len(s.Name) > most || len(s.Message) > most ||
				strings.Contains(strings.ToLower(e.Error()), "sig=") {
				t.Errorf("%v", e)
			}
		}
	})
}
