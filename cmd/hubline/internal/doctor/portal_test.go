package doctor

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/testbroker"
)

// atPort80 makes port 80 of the service f's.
func (p *patient) atPort80(f func(ctx context.Context) (net.Conn, error)) {
	open := p.dial
	p.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if strings.HasSuffix(address, ":80") {
			return f(ctx)
		}
		return open(ctx, network, address)
	}
}

// says returns a connection to a server with one answer.
func says(answer string) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		go func() { // ends with the connection
			buffer := make([]byte, 1024)
			_, _ = far.Read(buffer)
			_, _ = far.Write([]byte(answer))
			_ = far.Close()
		}()
		return near, nil
	}
}

func redirect(to string) string { return "HTTP/1.1 302 Found\r\nLocation: " + to + "\r\n\r\n" }

// portals are answers at port 80, with the marks at a hub and at a broker.
var portals = []struct {
	answer      string
	hub, broker Mark
}{
	{redirect("http://login.hotel.example/?next=hub"), Bad, Bad},
	{redirect("https://login.hotel.example/"), Bad, Bad},
	{redirect("//login.hotel.example/"), Bad, Bad},
	{redirect("/login"), Bad, Warn},
	{redirect("http://" + testbroker.DefaultHostName + "/login"), Bad, Warn},
	{redirect("https://" + testbroker.DefaultHostName + ":8443/login"), Bad, Warn},
	{redirect("https://" + testbroker.DefaultHostName + "/"), OK, OK},
	{"HTTP/1.1 302 Found\r\n\r\n", Bad, Warn},
	{"HTTP/1.1 511 Network Authentication Required\r\n\r\n", Bad, Bad},
	{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nlogin", Bad, Warn},
	{"HTTP/1.1 401 Unauthorized\r\n\r\n", Warn, Warn},
	{"HTTP/1.1 403 Forbidden\r\n\r\n", Warn, Warn},
	{"HTTP/1.1 404 Not Found\r\n\r\n", OK, OK},
	{"SSH-2.0-hello\r\n", Skipped, Skipped},
	{"", Skipped, Skipped},
	{"HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Fill: "+strings.Repeat("x", 1000)+"\r\n", 100), Skipped, Skipped},
}

func TestPortals(t *testing.T) {
	for _, c := range portals {
		examine(t, nil, func(p *patient) { p.seesPortal(says(c.answer), c.hub, c.answer) })
		examine(t, &testbroker.Options{Broker: &testbroker.BrokerOptions{}}, func(p *patient) {
			to := p.hub.BrokerURL("pump-1", "mqtts", p.hub.HostName()+":8883")
			p.use(target.Flags{}, map[string]string{target.EnvBroker: to})
			p.seesPortal(says(c.answer), c.broker, c.answer)
		})
	}
}

func (p *patient) seesPortal(f func(context.Context) (net.Conn, error), mark Mark, what string) {
	p.t.Helper()
	p.atPort80(f)
	require.NoError(p.t, p.hub.PresentName("portal.example"))
	p.probe.Options = Options{Timeout: p.probe.Options.Timeout, NoMessages: true}
	row := p.run()["portal"]
	require.Equal(p.t, mark, row.Mark, "%q: %+v", what, row)
	if mark == Bad || mark == Warn {
		require.Contains(p.t, row.Hint, "log in")
	}
}

// A portal that lets the device through is no failure. One that answers for the service is the
// cause of the other failures.
func TestAPortalIsJudgedByWhatItLetsThrough(t *testing.T) {
	for _, open := range []bool{true, false} {
		examine(t, nil, func(p *patient) {
			p.atPort80(says(redirect("http://login.hotel.example/")))
			if !open {
				require.NoError(p.t, p.hub.PresentName("portal.example"))
			}
			rows := p.run()
			require.Equal(p.t, open, rows["connect mqtt"].Mark == OK)
			if open {
				require.Nil(p.t, Worst(p.probe.rows))
				require.Equal(p.t, Warn, rows["portal"].Mark)
				require.Contains(p.t, rows["portal"].Hint, "lets the device through")
			} else {
				require.Equal(p.t, Bad, rows["tls 8883"].Mark)
				require.Equal(p.t, "portal", Worst(p.probe.rows).Check)
			}
		})
	}
}

// A closed port shows that there is no portal. No other failure does.
func TestPort80ThatIsNotOpen(t *testing.T) {
	for _, c := range []struct {
		err  error
		mark Mark
	}{
		{syscall.ECONNREFUSED, OK},
		{syscall.ENETUNREACH, Skipped},
		{os.ErrDeadlineExceeded, Skipped},
		{errors.New("connection refused"), Skipped},
		{nil, Skipped}, // no answer until the step's time is over
	} {
		examine(t, nil, func(p *patient) {
			p.seesPortal(func(ctx context.Context) (net.Conn, error) {
				if c.err != nil {
					return nil, &net.OpError{Op: "dial", Net: "tcp", Err: c.err}
				}
				<-ctx.Done()
				return nil, ctx.Err()
			}, c.mark, "dial")
		})
	}
}

// Behind a proxy the way to port 80 is another one.
func TestNoPortalIsSearchedBehindAProxy(t *testing.T) {
	examine(t, nil, func(p *patient) {
		p.probe.FindProxy = func(*url.URL) (*url.URL, error) { return url.Parse("http://proxy.example:3128") }
		p.seesPortal(says(redirect("/login")), Skipped, "behind a proxy")
	})
}
