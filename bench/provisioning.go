package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpsamqp"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/provisioning/dpsmqtt"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"

	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/websocket"
)

func init() { children["provisioning"] = provisioningChild }

// Registrars are the compared protocols of a registration, all over TLS.
var Registrars = []struct {
	Name    string
	Port    testbroker.Port
	Tunnel  netopt.Tunnel
	Carrier func(o *netopt.Options) provisioning.Carrier
}{
	{"HTTPS", testbroker.PortHTTPS, nil, httpCarrier},
	{"MQTT", testbroker.PortMQTTS, nil, mqttCarrier},
	{"MQTT over WebSocket", testbroker.PortHTTPS, websocket.MQTT(nil), mqttCarrier},
	{"AMQP", testbroker.PortAMQPS, nil, amqpCarrier},
	{"AMQP over WebSocket", testbroker.PortHTTPS, websocket.AMQP(nil), amqpCarrier},
}

func httpCarrier(o *netopt.Options) provisioning.Carrier { return dpshttp.New(o) }
func mqttCarrier(o *netopt.Options) provisioning.Carrier { return dpsmqtt.New(o) }
func amqpCarrier(o *netopt.Options) provisioning.Carrier { return dpsamqp.New(o) }

// serviceAccess has the data that a device needs to register.
type serviceAccess struct {
	Addrs          map[testbroker.Port]string
	CA             []byte
	Host, IDScope  string
	EnrollmentKey  string
	EnrollmentName string
}

// provisioningChild runs a provisioning service with a hub. The first poll gets the assignment, and
// nothing asks for a delay.
func provisioningChild(in *json.Decoder, say func(any)) (any, error) {
	service, err := testbroker.NewDPS(&testbroker.DPSOptions{RetryAfter: -1})
	if err != nil {
		return nil, err
	}
	defer service.Close()
	hub, err := testbroker.New(nil)
	if err != nil {
		return nil, err
	}
	defer hub.Close()
	if err := service.Link(hub); err != nil {
		return nil, err
	}
	group, err := service.Enroll(dpsdata.Enrollment{ID: "group", Group: true})
	if err != nil {
		return nil, err
	}
	a := serviceAccess{Addrs: map[testbroker.Port]string{}, CA: service.CAPEM(), Host: service.HostName(),
		IDScope: service.IDScope(), EnrollmentKey: group.PrimaryKey, EnrollmentName: group.ID}
	for _, r := range Registrars {
		if a.Addrs[r.Port] == "" {
			addr, err := service.Listen(r.Port, anyPort)
			if err != nil {
				return nil, err
			}
			a.Addrs[r.Port] = addr.String()
		}
	}
	say(&a)
	for { // answers each word of the parent with the number of requests
		if err := in.Decode(new(string)); err == io.EOF {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		say(len(service.Requests()))
	}
}

// ProvisioningPeer is a provisioning service in another process.
type ProvisioningPeer struct {
	child  *child
	access serviceAccess
}

// StartProvisioningPeer starts the service.
func StartProvisioningPeer(ctx context.Context) (*ProvisioningPeer, error) {
	c, err := startChild(ctx, "provisioning", "service")
	if err != nil {
		return nil, err
	}
	p := &ProvisioningPeer{child: c}
	if err := c.hear(&p.access); err != nil {
		return nil, c.end(err)
	}
	if err := c.hear(new(int)); err != nil { // the answer to the settings
		return nil, c.end(err)
	}
	return p, nil
}

// requests returns how many requests the service has had.
func (p *ProvisioningPeer) requests() (n int, err error) {
	err = errors.Join(json.NewEncoder(p.child.in).Encode("requests"), p.child.hear(&n))
	return n, err
}

// Close ends the service.
func (p *ProvisioningPeer) Close() error { return p.child.end(nil) }

// RegistrationReport is what one registration took.
type RegistrationReport struct {
	Requests       int   // to the service
	Sent, Received int64 // bytes on the socket, TLS included
	Took           time.Duration
}

// Register registers a device over Registrars[i], from the connection to its end, with a poll and
// without a delay before it. roundTrip is added to each round trip on the network.
func (p *ProvisioningPeer) Register(ctx context.Context, i int, device string,
	roundTrip time.Duration) (RegistrationReport, error) {
	sign, err := provisioning.GroupKey(p.access.EnrollmentKey, device)
	if err != nil {
		return RegistrationReport{}, err
	}
	network := p.network(Registrars[i].Port, roundTrip)
	tls := (&access{CA: p.access.CA, Host: p.access.Host}).tls()
	carrier := Registrars[i].Carrier(&netopt.Options{TLS: tls, Dial: network.dial, Tunnel: Registrars[i].Tunnel})
	c, err := provisioning.New(&provisioning.Identity{Endpoint: p.access.Host, IDScope: p.access.IDScope,
		RegistrationID: device, Sign: sign}, carrier, &provisioning.Options{PollInterval: time.Nanosecond})
	if err != nil {
		return RegistrationReport{}, err
	}
	return p.report(network, func() error {
		_, err := c.Register(ctx)
		return err
	})
}

// report measures a registration over network.
func (p *ProvisioningPeer) report(network *distantNetwork, register func() error) (r RegistrationReport, err error) {
	before, err := p.requests()
	if err != nil {
		return r, err
	}
	began := time.Now()
	if err := register(); err != nil {
		return r, err
	}
	r.Took = time.Since(began)
	r.Sent, r.Received = network.sent.Load(), network.received.Load()
	after, err := p.requests()
	r.Requests = after - before
	return r, err
}

func (p *ProvisioningPeer) network(port testbroker.Port, roundTrip time.Duration) *distantNetwork {
	return &distantNetwork{addr: p.access.Addrs[port], roundTrip: roundTrip}
}

// distantNetwork connects to one address, counts bytes, and adds to each round trip.
type distantNetwork struct {
	addr           string
	roundTrip      time.Duration
	sent, received atomic.Int64
}

func (n *distantNetwork) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, n.addr)
	if err != nil {
		return nil, err
	}
	time.Sleep(n.roundTrip) // the handshake of TCP
	c := &distantConn{Conn: conn, n: n, arrived: make(chan arrival, 1024), closed: make(chan struct{})}
	go c.receive() // ends with the connection
	return c, nil
}

// distantConn delivers data a round trip after its arrival. It has no deadlines for reads.
type distantConn struct {
	net.Conn
	n       *distantNetwork
	arrived chan arrival
	rest    []byte
	end     error

	close  sync.Once
	closed chan struct{}
}

type arrival struct {
	data []byte
	err  error
	at   time.Time
}

func (c *distantConn) receive() {
	for {
		b := make([]byte, 16<<10)
		n, err := c.Conn.Read(b)
		select {
		case c.arrived <- arrival{b[:n], err, time.Now()}:
		case <-c.closed:
			return
		}
		if err != nil {
			return
		}
	}
}

func (c *distantConn) Read(b []byte) (int, error) {
	if len(c.rest) == 0 {
		if c.end != nil {
			return 0, c.end
		}
		var a arrival
		select {
		case a = <-c.arrived:
		case <-c.closed:
			return 0, net.ErrClosed
		}
		select {
		case <-time.After(time.Until(a.at.Add(c.n.roundTrip))):
		case <-c.closed:
			return 0, net.ErrClosed
		}
		c.rest, c.end = a.data, a.err
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	c.n.received.Add(int64(n))
	if n == 0 {
		return 0, c.end
	}
	return n, nil
}

func (c *distantConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.n.sent.Add(int64(n))
	return n, err
}

func (c *distantConn) Close() error {
	c.close.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
