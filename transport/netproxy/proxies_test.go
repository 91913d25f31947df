package netproxy_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
)

// Small proxies for tests. They follow the RFCs and share no code with the package.

// target is the network behind a proxy.
type target func(ctx context.Context, network, addr string) (net.Conn, error)

// httpProxy serves CONNECT (RFC 9110 section 9.3.6).
type httpProxy struct {
	target target
	auth   string // "user:password"; empty: no authentication
	answer string // replaces the connection

	mu    sync.Mutex
	asked []string
}

func (p *httpProxy) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	r, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.asked = append(p.asked, r.Method+" "+r.RequestURI+" "+r.Host)
	p.mu.Unlock()
	if p.answer != "" {
		_, _ = io.WriteString(c, p.answer)
		_, _ = io.Copy(io.Discard, c)
		return
	}
	r.Header.Set("Authorization", r.Header.Get("Proxy-Authorization"))
	if user, password, _ := r.BasicAuth(); p.auth != "" && user+":"+password != p.auth {
		fmt.Fprintf(c, "HTTP/1.1 407 no %s\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n",
			r.Header.Get("Authorization"))
		return
	}
	far, err := p.target(context.Background(), "tcp", r.RequestURI)
	if err != nil {
		_, _ = io.WriteString(c, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
		return
	}
	_, _ = io.WriteString(c, "HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
	join(c, in, far)
}

// join copies in both directions until both have ended.
func join(c net.Conn, in io.Reader, far net.Conn) {
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(far, in)
		_ = far.Close()
	})
	_, _ = io.Copy(c, far)
	_ = c.Close()
	wg.Wait()
}

// socksProxy serves SOCKS5 (RFC 1928 and 1929).
type socksProxy struct {
	target target
	auth   string // "user:password"; empty: no authentication
	reply  byte   // replaces the connection, unless 0
	raw    []byte // replaces all answers

	mu    sync.Mutex
	asked []string
}

func (p *socksProxy) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	take := func(n int) []byte {
		b := make([]byte, n)
		if _, err := io.ReadFull(in, b); err != nil {
			return nil
		}
		return b
	}
	head := take(2)
	if head == nil || head[0] != 5 {
		return
	}
	methods := take(int(head[1]))
	if p.raw != nil {
		_, _ = c.Write(p.raw)
		_, _ = io.Copy(io.Discard, c)
		return
	}
	method := byte(0)
	if p.auth != "" {
		method = 2
	}
	offered := false
	for _, m := range methods {
		offered = offered || m == method
	}
	if !offered {
		_, _ = c.Write([]byte{5, 0xFF})
		return
	}
	_, _ = c.Write([]byte{5, method})
	if method == 2 {
		user := string(take(int(take(2)[1])))
		password := string(take(int(take(1)[0])))
		if user+":"+password != p.auth {
			_, _ = c.Write([]byte{1, 1})
			return
		}
		_, _ = c.Write([]byte{1, 0})
	}
	request := take(4)
	if request == nil {
		return
	}
	var host string
	switch request[3] {
	case 1:
		host = net.IP(take(4)).String()
	case 3:
		host = string(take(int(take(1)[0])))
	case 4:
		host = net.IP(take(16)).String()
	}
	addr := net.JoinHostPort(host, fmt.Sprint(binary.BigEndian.Uint16(take(2))))
	p.mu.Lock()
	p.asked = append(p.asked, fmt.Sprint(request[1], " ", request[3], " ", addr))
	p.mu.Unlock()
	reply := p.reply
	var far net.Conn
	if reply == 0 {
		var err error
		if far, err = p.target(context.Background(), "tcp", addr); err != nil {
			reply = 5
		}
	}
	_, _ = c.Write([]byte{5, reply, 0, 1, 0, 0, 0, 0, 0, 0})
	if reply == 0 {
		join(c, in, far)
	}
}

// listen serves connections of l until it is closed.
func listen(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go serve(c)
	}
}
