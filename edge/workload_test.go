package edge_test

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/edge"
	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
)

// certificates returns n certificates in PEM, with junk around them, and in a pool.
func certificates(t testing.TB, n int) ([]byte, *x509.CertPool) {
	t.Helper()
	text, roots := []byte("subject=junk\n"), x509.NewCertPool()
	for i := range n {
		cert := testbroker.NewClientCert(fmt.Sprint("ca-", i), time.Time{}, time.Time{})
		roots.AddCert(cert.Leaf)
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]})...)
		text = append(text, "\n\nissuer=junk\n"...)
	}
	return text, roots
}

// asked is a request that the daemon has read.
type asked struct {
	*http.Request
	body    []byte
	network string // that was dialed
	addr    string
}

// daemon is a workload API in memory that answers each request with the bytes of answer. With no
// bytes it leaves the connection open.
type daemon struct {
	answer func(asked) string

	mu    sync.Mutex
	log   []asked
	taken int // bytes of answers that connections took
	peers sync.WaitGroup
}

// dial is an edge.Options.Dial.
func (d *daemon) dial(_ context.Context, network, addr string) (net.Conn, error) {
	near, far := memconn.Pair("near:1", "far:1")
	d.peers.Go(func() {
		defer far.Close()
		r, err := http.ReadRequest(bufio.NewReader(far))
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		a := asked{r, body, network, addr}
		d.mu.Lock()
		d.log = append(d.log, a) // before the answer, after which the next request may come
		d.mu.Unlock()
		text := d.answer(a)
		n, _ := io.WriteString(far, text)
		d.mu.Lock()
		d.taken += n
		d.mu.Unlock()
		if text == "" {
			_, _ = io.Copy(io.Discard, far)
		}
	})
	return near, nil
}

// calls waits for the daemon and returns its log.
func (d *daemon) calls() []asked {
	d.peers.Wait()
	return d.log
}

// module returns the module of an environment whose daemon is d.
func (d *daemon) module(t *testing.T, v variables) *edge.Module {
	t.Helper()
	m, err := edge.FromEnvironment(&edge.Options{LookupEnv: v.lookup, Dial: d.dial})
	require.NoError(t, err)
	return m
}

// answered is an answer with a body.
func answered(status int, body string) string {
	return fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status,
		len(body), body)
}

func jsonOf(name string, value any) string {
	text, err := json.Marshal(map[string]any{name: value})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// Vector: hub-protocol.md, A.3, and the key of the module there.
func TestTheDaemonSignsTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := make([]byte, 32)
		for i := range key {
			key[i] = byte(i)
		}
		d := &daemon{answer: func(a asked) string {
			var said struct {
				KeyID, Algo string
				Data        []byte
			}
			if json.Unmarshal(a.body, &said) != nil || said.KeyID != "primary" || said.Algo != "HMACSHA256" {
				return answered(400, "")
			}
			mac := hmac.New(sha256.New, key)
			mac.Write(said.Data)
			return answered(200, jsonOf("digest", mac.Sum(nil)))
		}}
		m := d.module(t, ofRuntime.with("IOTEDGE_DEVICEID", "dev-1", "IOTEDGE_MODULEID", "mod-1"))
		m.Credentials.TokenLife = 10 * time.Minute
		m.Credentials.Now = func() time.Time { return time.Unix(1893456000, 0).Add(-10 * time.Minute) }
		token, err := m.Credentials.NewToken(t.Context())
		require.NoError(t, err)
		require.Equal(t, "SharedAccessSignature sr=hub1.example.test%2Fdevices%2Fdev-1%2Fmodules%2Fmod-1"+
			"&sig=BygQTaq%2B%2BexEDIDsROvbR7QfclF0h64UGKEmLJ7BcRY%3D&se=1893456000", token.Text.Reveal())
		require.Equal(t, int64(1893456000), token.Expires.Unix())
	})
}

func TestTheFormOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bundle, roots := certificates(t, 3)
		d := &daemon{answer: func(a asked) string {
			if a.Method == http.MethodGet {
				return answered(200, jsonOf("certificate", string(bundle)))
			}
			return answered(200, jsonOf("digest", make([]byte, 32)))
		}}
		m := d.module(t, ofRuntime.with("IOTEDGE_MODULEID", "$edgeAgent", "IOTEDGE_MODULEGENERATIONID", "6/ 3%"))
		_, err := m.Credentials.Sign(t.Context(), []byte("text"))
		require.NoError(t, err)
		got, err := m.Network.RootCAs(t.Context(), nil)
		require.NoError(t, err)
		require.True(t, roots.Equal(got))
		m = d.module(t, ofRuntime.with("IOTEDGE_WORKLOADURI", "http://daemon:15580/base%2Fpath/", "IOTEDGE_APIVERSION", ""))
		_, err = m.Credentials.Sign(t.Context(), []byte("text"))
		require.NoError(t, err)

		log := d.calls()
		for i, want := range []string{
			"unix /var/run/iotedge/workload.sock POST localhost " +
				"/modules/%24edgeAgent/genid/6%2F%203%25/sign?api-version=2019-01-30",
			"unix /var/run/iotedge/workload.sock GET localhost /trust-bundle?api-version=2019-01-30",
			"tcp daemon:15580 POST daemon:15580 " +
				"/base%2Fpath/modules/filter/genid/636463636967581550/sign?api-version=2018-06-28",
		} {
			a := log[i]
			require.Equal(t, want, strings.Join([]string{a.network, a.addr, a.Method, a.Host, a.RequestURI}, " "))
			require.True(t, a.Close, "one connection for each call")
		}
		require.JSONEq(t, `{"keyId":"primary","algo":"HMACSHA256","data":"dGV4dA=="}`, string(log[0].body))
		require.Equal(t, "application/json; charset=utf-8", log[0].Header.Get("Content-Type"))
		require.Empty(t, log[1].body)
	})
}

// secret must not be in errors.
const secret = "c2VjcmV0LWtleS1vZi10aGUtdGVzdHM="

// refusals are what the daemon may answer to any call.
var refusals = map[string]struct {
	answer string
	kind   transport.Kind
	retry  bool
	text   string
}{
	"500": {answered(500, `{"message":"no key"}`), transport.Unavailable, true,
		"daemon answered 500 (Internal Server Error): no key"},
	"503 without": {answered(503, ""), transport.Unavailable, true, "503 (Service Unavailable)"},
	"504":         {answered(504, ""), transport.Unavailable, true, "504"},
	"401":         {answered(401, ""), transport.Unavailable, true, "does not know this process"},
	"403":         {answered(403, `{"message":"forbidden"}`), transport.Unavailable, true, "forbidden"},
	"404":         {answered(404, `{"message":"no module"}`), transport.Unavailable, true, "creating the module anew"},
	"408":         {answered(408, ""), transport.Timeout, true, "408"},
	"429":         {answered(429, ""), transport.Throttled, true, "429"},
	"400":         {answered(400, ""), transport.Invalid, false, "check IOTEDGE_APIVERSION"},
	"301":         {answered(301, ""), transport.Protocol, false, "check IOTEDGE_WORKLOADURI"},
	"201":         {answered(201, ""), transport.Protocol, false, "201"},
	"418":         {answered(418, ""), transport.Protocol, false, "418"},
	"600":         {answered(600, ""), transport.Protocol, false, "600"},
	"not HTTP":    {"SSH-2.0-x\r\n\r\n", transport.Protocol, true, "makes no sense"},
	"no JSON":     {answered(200, "<html>"+secret), transport.Protocol, true, "it is not JSON, from byte 1"},
	"half of it":  {answered(200, `{"digest":`), transport.Protocol, true, "it is not JSON"},
	"a list":      {answered(200, `["`+secret+`"]`), transport.Protocol, true, "JSON member"},
	"a number":    {answered(200, `{"digest":7,"certificate":7}`), transport.Protocol, true, "JSON member"},
	"null":        {answered(200, `{"digest":null,"certificate":null}`), transport.Protocol, true, "certificate"},
	"nothing":     {answered(200, "{}"), transport.Protocol, true, "certificate"},
	"junk": {answered(200, `{"digest":"-`+secret+`","certificate":"`+secret+`"}`), transport.Protocol, true,
		"certificate"},
	"cut in its head": {"HTTP/1.1 200 OK\r\nContent-", transport.Network, true, "unexpected EOF"},
	"cut in its body": {answered(200, `{"digest":"`)[:70], transport.Network, true, "unexpected EOF"},
	"a bad chunk": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", transport.Protocol, true,
		"makes no sense"},
	"many interim": {strings.Repeat("HTTP/1.1 102 X\r\n\r\n", 7), transport.Protocol, true, "interim"},
	"a large body": {answered(200, jsonOf("digest", strings.Repeat("A", 1<<20))), transport.Protocol, true,
		"more than"},
	"a large head": {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("A", 1<<20), transport.Protocol, true,
		"more than"},
	"a secret": {answered(500, `{"message":"SharedAccessKey=`+secret+`"}`), transport.Unavailable, true,
		"(hidden)"},
	"control codes": {answered(500, `{"message":"\u001b[2J\n"}`), transport.Unavailable, true, `\x1b`},
}

func TestRefusalsOfTheDaemon(t *testing.T) {
	for name, c := range refusals {
		testkit.Run(t, name, func(t *testing.T) {
			d := &daemon{answer: func(asked) string { return c.answer }}
			m := d.module(t, ofRuntime)
			_, signErr := m.Credentials.Sign(t.Context(), []byte("text"))
			_, tokenErr := m.Credentials.NewToken(t.Context())
			_, rootsErr := m.Network.RootCAs(t.Context(), nil)
			for _, err := range []error{signErr, tokenErr, rootsErr} {
				require.Equal(t, c.kind, transport.KindOf(err), "%v", err)
				require.Equal(t, c.retry, errfilter.Retryable(err), "%v", err)
				require.ErrorContains(t, err, "workload API, ")
				require.NotContains(t, err.Error(), secret)
				if refusal, ok := errors.AsType[*transport.StatusError](err); ok {
					require.Equal(t, "daemon", refusal.Service)
					require.NotContains(t, refusal.Message, secret)
				}
				require.Less(t, len(err.Error()), 2000)
			}
			require.ErrorContains(t, rootsErr, "trust bundle: ")
			require.ErrorContains(t, rootsErr, c.text)
			require.ErrorContains(t, tokenErr, "sign: ")
			d.peers.Wait()
			require.Less(t, d.taken, 5<<20, "the rest of a large answer is not read")
		})
	}
}

// A digest that is no HMAC would make a token that the hub refuses for good.
func TestADigestOfAnotherSizeIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int{0, 31, 33} {
			d := &daemon{answer: func(asked) string { return answered(200, jsonOf("digest", make([]byte, n))) }}
			_, err := d.module(t, ofRuntime).Credentials.NewToken(t.Context())
			require.True(t, errfilter.Retryable(err))
			require.ErrorContains(t, err, "digest has "+strconv.Itoa(n)+" bytes, want 32")
		}
	})
}

func TestADaemonThatIsNotThere(t *testing.T) {
	for name, c := range map[string]struct {
		dial func() (net.Conn, error)
		kind transport.Kind
		text string
	}{
		"refused": {func() (net.Conn, error) { return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED} },
			transport.Network, "connection refused"},
		"no socket": {func() (net.Conn, error) { return nil, &net.OpError{Op: "dial", Err: syscall.ENOENT} },
			transport.Network, "no such file"},
		"no name": {func() (net.Conn, error) { return nil, &net.DNSError{Name: "daemon"} },
			transport.Network, "daemon"},
		"a bad address": {func() (net.Conn, error) { return nil, &net.AddrError{Err: "bad"} }, transport.Network, "bad"},
		"a Kind":        {func() (net.Conn, error) { return nil, transport.Quota }, transport.Quota, "quota"},
		"an error with a Kind": {func() (net.Conn, error) {
			return nil, &transport.Error{Kind: transport.Forbidden, Err: errors.New("no right")}
		}, transport.Forbidden, "no right"},
		"a panic":       {func() (net.Conn, error) { panic("why") }, transport.Network, "panicked: why"},
		"a nil pointer": {func() (net.Conn, error) { return nil, (*os.PathError)(nil) }, transport.Network, "an error whose"},
		"no connection": {func() (net.Conn, error) { return nil, nil }, transport.Network, "no connection"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := edge.FromEnvironment(&edge.Options{LookupEnv: ofRuntime.lookup,
				Dial: func(context.Context, string, string) (net.Conn, error) { return c.dial() }})
			require.NoError(t, err)
			_, err = m.Credentials.NewToken(t.Context())
			require.Equal(t, c.kind, transport.KindOf(err), "%v", err)
			require.ErrorContains(t, err, c.text)
		})
	}
}

func TestASlowDaemonIsATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{answer: func(asked) string { return "" }}
		began := time.Now()
		_, err := d.module(t, ofRuntime).Credentials.NewToken(t.Context())
		require.Equal(t, transport.Timeout, transport.KindOf(err), "%v", err)
		require.True(t, errfilter.Retryable(err))
		require.ErrorContains(t, err, "no answer within 20s")
		require.Equal(t, 20*time.Second, time.Since(began))

		began = time.Now()
		m, err := edge.FromEnvironment(&edge.Options{LookupEnv: ofRuntime.lookup, Timeout: time.Second,
			Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }})
		require.NoError(t, err)
		_, err = m.Credentials.NewToken(t.Context())
		require.Equal(t, transport.Timeout, transport.KindOf(err), "%v", err)
		require.Equal(t, time.Second, time.Since(began))
		d.peers.Wait()
	})
}

func TestACallEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{answer: func(asked) string { return "" }}
		m := d.module(t, ofRuntime)
		for _, cancelled := range []bool{false, true} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if cancelled {
				time.AfterFunc(time.Millisecond, cancel)
			}
			_, err := m.Network.RootCAs(ctx, nil)
			require.Equal(t, ctx.Err(), err)
			_, err = m.Credentials.NewToken(ctx)
			require.Equal(t, ctx.Err(), err)
			cancel()
		}
		d.peers.Wait()
	})
}
