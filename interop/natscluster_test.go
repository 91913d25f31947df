package interop

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// natsUser and natsPassword are those of every client.
const natsUser, natsPassword = deviceID, "a password of NATS"

// natsStream is where the server keeps MQTT messages with QoS 1. It acknowledges them once a
// majority of the nodes has stored them there.
const natsStream = "$MQTT_msgs"

// natsProgram is the server, built once for all tests from the version that go.mod names.
var natsProgram struct {
	once sync.Once
	path string
	err  error
}

func buildNATS(t testing.TB) string {
	p := &natsProgram
	p.once.Do(func() {
		var dir string
		if dir, p.err = os.MkdirTemp("", "hubline-nats-"); p.err != nil {
			return
		}
		p.path = filepath.Join(dir, "nats-server")
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		build := exec.CommandContext(ctx, "go", "build", "-o", p.path, "github.com/nats-io/nats-server/v2")
		if out, err := build.CombinedOutput(); err != nil {
			p.err = fmt.Errorf("go build nats-server: %w\n%s", err, out)
		}
	})
	if p.err != nil {
		t.Log(p.err)
		missing(t, "nats-server, built from the Go module github.com/nats-io/nats-server/v2")
	}
	return p.path
}

// natsNode is one server of a cluster.
type natsNode struct {
	name, config       string
	client, mqtt, http string
	process            *child
}

// natsCluster is a running cluster. It has JetStream with three replicas and fsync for each
// message, and MQTT.
type natsCluster struct {
	t       testing.TB
	dir     string
	program string
	node    []*natsNode
	conn    *nats.Conn
	js      jetstream.JetStream
}

// startNATS runs that many servers until the test ends.
func startNATS(t testing.TB, servers int) *natsCluster {
	c := &natsCluster{t: t, dir: t.TempDir(), program: buildNATS(t)}
	const portsEach = 4
	ports := freePorts(t, portsEach*servers)
	var routes []string
	for i := range servers {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[portsEach*i+3]))
	}
	var urls []string
	for i := range servers {
		p := ports[portsEach*i : portsEach*(i+1)]
		n := &natsNode{
			name: fmt.Sprintf("n%d", i), client: loopback(p[0]), mqtt: loopback(p[1]), http: loopback(p[2]),
			config: filepath.Join(c.dir, fmt.Sprintf("n%d.conf", i)),
		}
		urls = append(urls, "nats://"+n.client)
		config := fmt.Sprintf(`server_name: %s
listen: "%s"
http: "%s"
authorization { user: %q, password: %q }
jetstream { store_dir: %q, max_memory_store: 64MB, max_file_store: 1GB, sync_interval: always }
mqtt { listen: "%s", stream_replicas: %d, ack_wait: "10s", js_api_timeout: "2s" }
`, n.name, n.client, n.http, natsUser, natsPassword, filepath.Join(c.dir, n.name), n.mqtt, servers)
		if servers > 1 {
			config += fmt.Sprintf("cluster { name: hubline, listen: %q, routes: [%s] }\n", loopback(p[3]),
				strings.Join(routes, ", "))
		}
		require.NoError(t, os.WriteFile(n.config, []byte(config), 0o600))
		c.node = append(c.node, n)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, n := range c.node {
				t.Logf("%s said:\n%s", n.name, lastLines(n.process.said(), 30))
			}
		}
	})
	for i := range c.node {
		c.start(i)
	}
	for i := range c.node {
		c.healthy(i)
	}
	var err error
	c.conn, err = nats.Connect(strings.Join(urls, ","), nats.UserInfo(natsUser, natsPassword), nats.MaxReconnects(-1),
		nats.ReconnectWait(50*time.Millisecond), nats.RetryOnFailedConnect(true))
	require.NoError(t, err)
	t.Cleanup(c.conn.Close)
	c.js, err = jetstream.New(c.conn)
	require.NoError(t, err)
	return c
}

// lastLines returns the last n lines of text.
func lastLines(text []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func (c *natsCluster) start(i int) {
	n := c.node[i]
	n.process = startChild(c.t, c.dir, nil, c.program, "-c", n.config)
}

// healthy waits until the node has caught up with all streams and consumers that it is to have.
func (c *natsCluster) healthy(i int) {
	c.t.Helper()
	url := "http://" + c.node[i].http + "/healthz"
	eventually(c.t, c.node[i].name+" is healthy", func() bool {
		r, err := http.Get(url)
		if err != nil {
			return false
		}
		_ = r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
}

// addrs returns the MQTT addresses of all nodes.
func (c *natsCluster) addrs() []string {
	var addrs []string
	for _, n := range c.node {
		addrs = append(addrs, n.mqtt)
	}
	return addrs
}

func (c *natsCluster) nodes() int      { return len(c.node) }
func (c *natsCluster) kill(i int)      { c.node[i].process.kill() }
func (c *natsCluster) revive(i int)    { c.start(i) }
func (c *natsCluster) settled()        { c.settle(len(c.node) - 1) }
func (c *natsCluster) leader() (i int) { return c.settle(0) }

// settle waits until the stream has a leader and that many replicas that are up to date. It
// returns the leader.
func (c *natsCluster) settle(replicas int) (leader int) {
	c.t.Helper()
	if replicas > 0 {
		for i := range c.node {
			c.healthy(i)
		}
	}
	eventually(c.t, "a leader with its replicas", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		s, err := c.js.Stream(ctx, natsStream)
		if err != nil {
			return false
		}
		info := s.CachedInfo().Cluster
		if info == nil {
			return false
		}
		leader = slices.IndexFunc(c.node, func(n *natsNode) bool { return n.name == info.Leader })
		current := 0
		for _, r := range info.Replicas {
			if r.Current && !r.Offline {
				current++
			}
		}
		return leader >= 0 && current >= replicas
	})
	return leader
}

// observe passes every message that the cluster has stored below a topic to arrived, each stored
// copy once and in the order of the stream. Its consumer is durable and replicated.
func (c *natsCluster) observe(subject string, arrived func(payload []byte)) {
	t := c.t
	var consumer jetstream.Consumer
	eventually(t, "the observer's consumer", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		var err error
		consumer, err = c.js.CreateOrUpdateConsumer(ctx, natsStream, jetstream.ConsumerConfig{
			Durable: "observer", FilterSubject: "$MQTT.msgs." + subject, AckPolicy: jetstream.AckExplicitPolicy,
			AckWait: 5 * time.Second, MaxAckPending: 10000,
		})
		return err == nil
	})
	seen := make(map[uint64]bool) // redeliveries have the same sequence number
	run, err := consumer.Consume(func(m jetstream.Msg) {
		info, err := m.Metadata()
		if err == nil && !seen[info.Sequence.Stream] {
			seen[info.Sequence.Stream] = true
			arrived(m.Data())
		}
		_ = m.Ack()
	}, jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		if errors.Is(err, jetstream.ErrConsumerDeleted) {
			t.Errorf("observer: %v", err)
		}
	}))
	require.NoError(t, err)
	t.Cleanup(func() {
		run.Stop()
		<-run.Closed()
	})
}
