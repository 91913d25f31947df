package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"
)

const (
	rabbitctl = "/usr/lib/rabbitmq/bin/rabbitmqctl"
	// queueMQTT is a quorum queue that gets every message published over MQTT below site/.
	queueMQTT    = "mqtt"
	rabbitCookie = "HUBLINEINTEROP"
	// rabbitBoot bounds the start of a node, and of the cluster. After a kill it takes 5 s, sometimes
	// a minute.
	rabbitBoot = 3 * time.Minute
)

// rabbitNode is one node of a cluster.
type rabbitNode struct {
	name, dir  string
	env        []string
	amqp, mqtt string // addresses
	process    *child
}

// rabbitCluster is a running cluster with AMQP 1.0 and MQTT. Its queues are quorum queues on all
// nodes, those of MQTT sessions too.
type rabbitCluster struct {
	t       testing.TB
	node    []*rabbitNode
	leaders int // answers about leaders so far
}

// ledQueues are the queues that carry telemetry.
var ledQueues = []string{queueTelemetry, queueMQTT}

// startRabbits runs that many nodes until the test ends.
func startRabbits(t testing.TB, nodes int) *rabbitCluster {
	if !executable(rabbitProgram) {
		missing(t, "RabbitMQ ("+rabbitProgram+")")
	}
	epmd, err := exec.LookPath("epmd")
	if err != nil {
		missing(t, "Erlang's epmd")
	}
	if _, err := exec.LookPath("erl_call"); err != nil {
		missing(t, "Erlang's erl_call")
	}
	c := &rabbitCluster{t: t}
	const portsEach = 3
	ports := freePorts(t, portsEach*nodes+1)
	epmdPort := ports[portsEach*nodes]
	definitions, err := json.Marshal(map[string]any{
		"vhosts": []any{map[string]any{"name": "/"}},
		"users":  []any{map[string]any{"name": rabbitUser, "password": rabbitPassword, "tags": ""}},
		"permissions": []any{map[string]any{"user": rabbitUser, "vhost": "/", "configure": ".*", "write": ".*",
			"read": ".*"}},
		"queues": []any{quorumQueue(queueTelemetry, nodes), quorumQueue(queueCloudToDevice, nodes),
			quorumQueue(queueMQTT, nodes)},
		"bindings": []any{map[string]any{"source": "amq.topic", "vhost": "/", "destination": queueMQTT,
			"destination_type": "queue", "routing_key": "site.#", "arguments": map[string]any{}}},
	})
	require.NoError(t, err)
	// A single node that was killed elects no leader for the quorum queue of a session within a
	// minute, and messages for the session are not confirmed.
	sessions := "quorum"
	if nodes == 1 {
		sessions = "classic"
	}
	top := t.TempDir()
	var peers []string
	for i := range nodes {
		peers = append(peers, fmt.Sprintf("cluster_formation.classic_config.nodes.%d = hubline-%d@localhost", i+1, i))
	}
	for i := range nodes {
		n := &rabbitNode{name: fmt.Sprintf("hubline-%d@localhost", i), dir: filepath.Join(top, fmt.Sprint(i))}
		p := ports[portsEach*i:]
		n.amqp, n.mqtt = loopback(p[0]), loopback(p[1])
		require.NoError(t, os.Mkdir(n.dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(n.dir, ".erlang.cookie"), []byte(rabbitCookie), 0o400))
		n.env = rabbitEnv(t, n.dir, n.name, epmdPort, p[2], append([]string{
			"listeners.tcp.1 = " + n.amqp,
			"mqtt.listeners.tcp.1 = " + n.mqtt,
			"mqtt.allow_anonymous = false",
			"mqtt.vhost = /",
			"mqtt.durable_queue_type = " + sessions,
			"cluster_formation.peer_discovery_backend = classic_config",
			"cluster_partition_handling = pause_minority",
			"mnesia_table_loading_retry_timeout = 5000",
			"log.console = true",
			"log.file = false",
		}, peers...), "rabbitmq_amqp1_0,rabbitmq_mqtt")
		c.node = append(c.node, n)
	}
	startEPMD(t, top, c.node[0].env, epmd, epmdPort)
	t.Cleanup(func() {
		if t.Failed() {
			for _, n := range c.node {
				t.Logf("%s said:\n%s", n.name, lastLines(n.process.said(), 30))
			}
		}
	})
	for i := range nodes { // the first node alone: nodes that begin together may form two clusters
		c.start(i)
		if i == 0 {
			c.listening(i)
		}
	}
	for i := range nodes {
		c.listening(i)
	}
	file := filepath.Join(top, "definitions.json")
	require.NoError(t, os.WriteFile(file, definitions, 0o600))
	boot, cancel := context.WithTimeout(t.Context(), rabbitBoot) // it waits for nodes that still join
	defer cancel()
	ctl := exec.CommandContext(boot, rabbitctl, "-n", c.node[0].name, "import_definitions", file)
	ctl.Env = append(os.Environ(), c.node[0].env...)
	out, err := ctl.CombinedOutput()
	require.NoError(t, err, "rabbitmqctl import_definitions: %s", out)
	return c
}

func quorumQueue(name string, nodes int) map[string]any {
	return map[string]any{"name": name, "vhost": "/", "durable": true, "auto_delete": false,
		"arguments": map[string]any{"x-queue-type": "quorum", "x-quorum-initial-group-size": nodes}}
}

func (c *rabbitCluster) start(i int) {
	n := c.node[i]
	n.process = startChild(c.t, n.dir, n.env, rabbitProgram)
}

func (c *rabbitCluster) listening(i int) {
	for _, addr := range []string{c.node[i].amqp, c.node[i].mqtt} {
		within(c.t, rabbitBoot, c.node[i].name+" listens at "+addr, func() bool { return listens(addr) })
	}
}

func (c *rabbitCluster) nodes() int   { return len(c.node) }
func (c *rabbitCluster) kill(i int)   { c.node[i].process.kill() }
func (c *rabbitCluster) revive(i int) { c.start(i) }

func (c *rabbitCluster) settled() {
	for i := range c.node {
		c.listening(i)
	}
	for _, queue := range ledQueues {
		c.await("every member of "+queue+" is up to date", `S = rabbit_quorum_queue:status(<<"/">>, <<"`+queue+`">>),
Is = [proplists:get_value(<<"Log Index">>, M) || M <- S],
Up = [1 || M <- S, lists:member(proplists:get_value(<<"Raft State">>, M), [leader, follower])],
case length(Up) == length(S) andalso lists:all(fun erlang:is_integer/1, Is)
andalso lists:max(Is) - lists:min(Is) < 1000 of true -> up; _ -> io_lib:format("~p", [S]) end.`,
			func(answer string) bool { return answer == "up" })
	}
}

// leader returns the node that leads a queue, each queue in turn for two kills.
func (c *rabbitCluster) leader() (i int) {
	led := ledQueues[c.leaders/2%len(ledQueues)]
	c.leaders++
	i = -1
	c.await("a leader of "+led, `{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"`+led+`">>)),
{_, N} = ra_leaderboard:lookup_leader(element(1, amqqueue:get_pid(Q))), N.`, func(answer string) bool {
		for at, n := range c.node {
			if strings.Trim(answer, "'") == n.name {
				i = at
			}
		}
		return i >= 0
	})
	return i
}

// await evaluates an Erlang expression on a running node until the answer is the wanted one.
func (c *rabbitCluster) await(what, expression string, wanted func(answer string) bool) {
	c.t.Helper()
	var last string
	at := 0
	defer func() {
		if c.t.Failed() {
			c.t.Logf("%s: last answer: %s", what, last)
		}
	}()
	within(c.t, rabbitBoot, what, func() bool {
		at++
		n := c.node[at%len(c.node)]
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		call := exec.CommandContext(ctx, "erl_call", "-sname", n.name, "-c", rabbitCookie, "-e")
		call.Env = append(os.Environ(), n.env...)
		call.Stdin = strings.NewReader(expression + "\n")
		out, err := call.CombinedOutput()
		last = fmt.Sprint(string(out), " ", err)
		answer := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(string(out)), "{ok, "), "}")
		return err == nil && wanted(answer)
	})
}

// addrs returns the addresses of all nodes.
func (c *rabbitCluster) addrs(of func(n *rabbitNode) string) []string {
	var addrs []string
	for _, n := range c.node {
		addrs = append(addrs, of(n))
	}
	return addrs
}

// observe receives all messages of a queue with go-amqp, over connections to any node, and passes
// each to arrived. The broker delivers some again after a lost connection, which is marked: of
// those, arrived gets the ones that have not come before.
func (c *rabbitCluster) observe(queue string, arrived func(payload []byte)) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	c.t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	seen := make(map[string]bool)
	wg.Go(func() {
		for at := 0; ctx.Err() == nil; at++ {
			err := observeOnce(ctx, c.node[at%len(c.node)].amqp, queue, func(m *goamqp.Message) {
				again := m.Header != nil && (m.Header.DeliveryCount > 0 || !m.Header.FirstAcquirer)
				payload := string(m.GetData())
				if !again || !seen[payload] {
					arrived(m.GetData())
				}
				seen[payload] = true
			})
			if ctx.Err() == nil {
				c.t.Logf("observer: %v", err)
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		}
	})
}

// observeOnce receives until the connection fails.
func observeOnce(ctx context.Context, addr, queue string, got func(*goamqp.Message)) error {
	dial, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := goamqp.Dial(dial, "amqp://"+addr, &goamqp.ConnOptions{
		SASLType: goamqp.SASLTypePlain(rabbitUser, rabbitPassword), HostName: hostName,
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	session, err := conn.NewSession(dial, nil)
	if err != nil {
		return err
	}
	r, err := session.NewReceiver(dial, "/amq/queue/"+queue, &goamqp.ReceiverOptions{Credit: 200})
	if err != nil {
		return err
	}
	for {
		// After the death of a queue's leader RabbitMQ 3.10 keeps some connections of receivers that get
		// nothing more.
		quiet, done := context.WithTimeout(ctx, 3*time.Second)
		m, err := r.Receive(quiet, nil)
		done()
		if err != nil {
			return err
		}
		got(m)
		accept, done := context.WithTimeout(ctx, 5*time.Second)
		err = r.AcceptMessage(accept, m)
		done()
		if err != nil {
			return errors.Join(errors.New("accept"), err)
		}
	}
}
