package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/testbroker"
)

// NodeRegistrars are the transports of the official client for Node.js.
var NodeRegistrars = []struct {
	Name, transport string
	port            testbroker.Port
	official        int // the port that the client connects to
}{
	{"Node.js, HTTPS", "http", testbroker.PortHTTPS, 443},
	{"Node.js, MQTT", "mqtt", testbroker.PortMQTTS, 8883},
	{"Node.js, MQTT over WebSocket", "mqtt-ws", testbroker.PortHTTPS, 443},
	{"Node.js, AMQP", "amqp", testbroker.PortAMQPS, 5671},
	{"Node.js, AMQP over WebSocket", "amqp-ws", testbroker.PortHTTPS, 443},
}

// NodeClient is the official client for Node.js in another process.
type NodeClient struct {
	peer *ProvisioningPeer
	cmd  *exec.Cmd
	ca   string // file
	in   io.WriteCloser
	out  *json.Decoder
}

// StartNode starts the script device.js of a folder, which is interop/node after "npm ci".
func (p *ProvisioningPeer) StartNode(ctx context.Context, folder string) (*NodeClient, error) {
	ca, err := os.CreateTemp("", "*.pem")
	if err != nil {
		return nil, err
	}
	_, err = ca.Write(p.access.CA)
	c := &NodeClient{peer: p, ca: ca.Name(), cmd: exec.CommandContext(ctx, "node", filepath.Join(folder, "device.js"))}
	c.cmd.Env = append(os.Environ(), "NODE_EXTRA_CA_CERTS="+c.ca)
	c.cmd.Stderr = os.Stderr
	in, inErr := c.cmd.StdinPipe()
	out, outErr := c.cmd.StdoutPipe()
	if err := errors.Join(err, ca.Close(), inErr, outErr, c.cmd.Start()); err != nil {
		return nil, errors.Join(err, os.Remove(c.ca))
	}
	c.in, c.out = in, json.NewDecoder(out)
	return c, nil
}

// Close ends the process.
func (c *NodeClient) Close() error {
	return errors.Join(c.in.Close(), c.cmd.Wait(), os.Remove(c.ca))
}

// Register registers a device over NodeRegistrars[i], like ProvisioningPeer.Register.
func (c *NodeClient) Register(_ context.Context, i int, device string,
	roundTrip time.Duration) (r RegistrationReport, err error) {
	n := NodeRegistrars[i]
	key, err := provisioning.DeriveKey(c.peer.access.EnrollmentKey, device)
	if err != nil {
		return r, err
	}
	network := c.peer.network(n.port, roundTrip)
	relay, err := net.Listen("tcp", anyPort)
	if err != nil {
		return r, err
	}
	var serving sync.WaitGroup
	serving.Go(func() { network.serve(relay) })
	port := relay.Addr().(*net.TCPAddr).Port
	err = c.tell("done", map[string]any{"do": "ports", "forward": []any{[]any{n.official, port, c.peer.access.Host}}})
	if err == nil {
		r, err = c.peer.report(network, func() error {
			return c.tell("registered", map[string]any{"do": "register", "name": device, "transport": n.transport,
				"host": c.peer.access.Host, "scope": c.peer.access.IDScope, "id": device, "key": key})
		})
	}
	_ = relay.Close()
	serving.Wait()
	return r, err
}

// tell sends a command and waits for its event.
func (c *NodeClient) tell(event string, command any) error {
	if err := json.NewEncoder(c.in).Encode(command); err != nil {
		return err
	}
	var e struct{ On, Text string }
	for e.On != event {
		if err := c.out.Decode(&e); err != nil {
			return err
		}
	}
	if e.Text != "" {
		return fmt.Errorf("node: %s", e.Text)
	}
	return nil
}

// serve connects what l accepts with the service, until l is closed and all connections have ended.
func (n *distantNetwork) serve(l net.Listener) {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		all.Go(func() {
			defer client.Close()
			service, err := n.dial(context.Background(), "tcp", "")
			if err != nil {
				return
			}
			defer service.Close()
			all.Go(func() {
				_, _ = io.Copy(service, client)
				_ = service.Close()
			})
			_, _ = io.Copy(client, service)
		})
	}
}
