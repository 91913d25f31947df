package netproxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
)

// maxHead bounds the head of an answer to CONNECT.
const maxHead = 16 << 10

// connect is the DialFunc of an HTTP proxy.
func (p *proxy) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	if _, _, err := net.SplitHostPort(addr); err != nil || strings.ContainsAny(addr, " \r\n") {
		return nil, &net.AddrError{Err: "no host:port", Addr: addr}
	}
	c, err := p.dial(ctx, network, p.addr)
	if err != nil {
		return nil, p.viaProxy(err)
	}
	aborted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(aborted)
		_ = c.Close()
	})
	outer, err := p.handshake(ctx, c, addr)
	if !stop() {
		<-aborted
		err = p.viaProxy(context.Cause(ctx))
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return outer, nil
}

// handshake does TLS with the proxy if configured, and requests a connection to addr.
func (p *proxy) handshake(ctx context.Context, c net.Conn, addr string) (net.Conn, error) {
	if p.tls != nil {
		// A write to the proxy is watched below its TLS, which cannot go on after a time-out.
		secure := tls.Client(dialer.NewProgressConn(c, 0), p.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, dialer.ClockError(p.viaProxy(err), p.tls.Time())
		}
		c = &secured{secure, c}
	}
	request := "CONNECT " + addr + " HTTP/1.1\r\nHost: " + addr + "\r\n"
	if p.authorization != "" {
		request += "Proxy-Authorization: " + p.authorization + "\r\n"
	}
	if _, err := io.WriteString(c, request+"\r\n"); err != nil {
		return nil, p.viaProxy(err)
	}
	head, err := readHead(c)
	if err != nil {
		return nil, p.viaProxy(err)
	}
	status, header, ok := parseHead(head)
	switch {
	case !ok:
		return nil, p.failed(transport.Protocol, errors.New("the answer is not HTTP; check host and port of the proxy"))
	case status/100 != 2:
		kind, hint := statuscode.Of(status, statuscode.Proxy).Kind, ""
		if offered := challenges(header); status == 407 && len(offered) > 0 && !slices.Contains(offered, basic) {
			kind = transport.Unsupported
			hint = "it wants " + strings.Join(offered, " or ") + ", but only Basic is supported; use another proxy, or one " +
				"on this machine that logs in there"
		}
		e := p.failed(kind, &transport.StatusError{
			Service: "proxy", Status: status, Meaning: statusTexts[status], Hint: hint})
		e.RetryAfter, _ = times.RetryAfterHeaders(header.Get, time.Now())
		return nil, e
	}
	return c, nil
}

// secured is TLS to the proxy. Its Close closes the socket only: tls.Conn.Close waits up to 5 s for
// a peer that accepts no data. The hub gets the close_notify of the inner TLS.
type secured struct {
	*tls.Conn
	socket net.Conn
}

func (s *secured) Close() error { return s.socket.Close() }

const basic = "Basic"

// schemes are names of ways to log in. Others are not repeated: they are texts of the peer.
var schemes = []string{basic, "Digest", "NTLM", "Negotiate", "Kerberos", "Bearer"}

// challenges returns the ways to log in that a 407 offers, "another scheme" for unknown ones.
func challenges(header textproto.MIMEHeader) (offered []string) {
	for _, value := range header.Values("Proxy-Authenticate") {
		known := false
		for challenge := range strings.SplitSeq(value, ",") { // or a parameter
			name, _, _ := strings.Cut(strings.TrimSpace(challenge), " ")
			at := slices.IndexFunc(schemes, func(s string) bool { return strings.EqualFold(s, name) })
			if at >= 0 {
				known, offered = true, append(offered, schemes[at])
			}
		}
		if !known {
			offered = append(offered, "another scheme")
		}
	}
	return offered
}

// readHead reads up to the empty line and not beyond: the bytes after it are the hub's. It stops at
// the first byte that HTTP does not have: another protocol may wait for its turn then.
func readHead(c net.Conn) ([]byte, error) {
	const begin = "HTTP/1."
	var head []byte
	var b [1]byte
	for len(head) < maxHead && !bytes.HasSuffix(head, []byte("\r\n\r\n")) && !bytes.HasSuffix(head, []byte("\n\n")) {
		if n := min(len(head), len(begin)); string(head[:n]) != begin[:n] {
			break
		}
		if _, err := io.ReadFull(c, b[:]); err != nil {
			if err == io.EOF {
				err = errProxyClosed
			}
			return nil, err
		}
		head = append(head, b[0])
	}
	return head, nil
}

// errProxyClosed wraps io.EOF with a clearer text.
var errProxyClosed error = proxyClosed{}

type proxyClosed struct{}

func (proxyClosed) Error() string { return "it closed the connection" }
func (proxyClosed) Unwrap() error { return io.EOF }

func parseHead(head []byte) (status int, header textproto.MIMEHeader, ok bool) {
	r := textproto.NewReader(bufio.NewReader(bytes.NewReader(head)))
	line, err := r.ReadLine()
	if err != nil {
		return 0, nil, false
	}
	version, rest, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(rest, " ")
	if n, err := strconv.ParseUint(code, 10, 16); err == nil && len(code) == 3 {
		status = int(n)
	}
	header, err = r.ReadMIMEHeader()
	return status, header, err == nil && status >= 100 && (version == "HTTP/1.1" || version == "HTTP/1.0")
}

// statusTexts are the meanings of statuses in errors. The proxy's own text is omitted, because it
// may repeat the request's credentials.
var statusTexts = map[int]string{
	400: "bad request",
	401: "unauthorized",
	403: "forbidden",
	404: "not found, so probably no proxy",
	405: "CONNECT not allowed",
	407: "proxy authentication required",
	408: "request timeout",
	429: "too many requests",
	451: "unavailable for legal reasons",
	500: "internal server error",
	501: "not implemented",
	502: "bad gateway",
	503: "service unavailable",
	504: "gateway timeout",
	505: "HTTP version not supported",
}
