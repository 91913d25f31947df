package interop

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rabbitProgram is the path of the server in Debian's package. The one on PATH would switch to its
// own user.
const rabbitProgram = "/usr/lib/rabbitmq/bin/rabbitmq-server"

// Objects that the broker has from its first start.
const (
	rabbitUser, rabbitPassword = deviceID, "a password" // the name is also that in the client certificate
	queueTelemetry             = "telemetry"
	queueCloudToDevice         = "cloud-to-device" // messages rejected here go to queueDead
	queueDead                  = "dead"
	queueSmall                 = "small" // holds smallQueue messages and refuses further ones
	smallQueue                 = 5
)

// rabbit is a running RabbitMQ with the plugin for AMQP 1.0. All its files are in one separate
// directory.
type rabbit struct {
	t             testing.TB
	ca            *authority
	devices       *authority // issuer of accepted client certificates
	dir           string
	env           []string
	secure, plain string
	plainPort     int
	node          *child
}

// startRabbit runs RabbitMQ until the test ends.
func startRabbit(t testing.TB) *rabbit {
	if !executable(rabbitProgram) {
		missing(t, "RabbitMQ ("+rabbitProgram+")")
	}
	epmd, err := exec.LookPath("epmd")
	if err != nil {
		missing(t, "Erlang's epmd")
	}
	b := &rabbit{t: t, ca: newAuthority(t), devices: newAuthority(t), dir: t.TempDir()}
	file := func(name string, content []byte) string {
		p := filepath.Join(b.dir, name)
		require.NoError(t, os.WriteFile(p, content, 0o600))
		return p
	}
	ports := freePorts(t, 4)
	b.plainPort = ports[1]
	b.secure, b.plain = loopback(ports[0]), loopback(ports[1])
	cert := b.ca.server(t, hostName)
	queue := func(name string, arguments map[string]any) map[string]any {
		return map[string]any{"name": name, "vhost": "/", "durable": true, "auto_delete": false, "arguments": arguments}
	}
	none := map[string]any{} // not nil, which the broker refuses
	definitions, err := json.Marshal(map[string]any{
		"vhosts": []any{map[string]any{"name": "/"}},
		"users":  []any{map[string]any{"name": rabbitUser, "password": rabbitPassword, "tags": ""}},
		"permissions": []any{map[string]any{"user": rabbitUser, "vhost": "/", "configure": ".*", "write": ".*",
			"read": ".*"}},
		"queues": []any{
			queue(queueTelemetry, none), queue(queueDead, none),
			queue(queueCloudToDevice, map[string]any{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queueDead}),
			queue(queueSmall, map[string]any{"x-max-length": smallQueue, "x-overflow": "reject-publish"}),
		},
	})
	require.NoError(t, err)
	config := []string{
		"listeners.ssl.1 = " + b.secure,
		"listeners.tcp.1 = " + b.plain,
		"ssl_options.certfile = " + file("cert.pem", certPEM(cert.Leaf)),
		"ssl_options.keyfile = " + file("key.pem", keyPEM(t, cert)),
		"ssl_options.cacertfile = " + file("devices.pem", certPEM(b.devices.cert)),
		"ssl_options.verify = verify_peer",
		"ssl_options.fail_if_no_peer_cert = false",
		"ssl_cert_login_from = common_name",
		"auth_mechanisms.1 = PLAIN",
		"auth_mechanisms.2 = EXTERNAL",
		"load_definitions = " + file("definitions.json", definitions),
		"log.console = true",
		"log.file = false",
	}
	b.env = rabbitEnv(t, b.dir, "hubline-interop@localhost", ports[2], ports[3], config,
		"rabbitmq_amqp1_0,rabbitmq_auth_mechanism_ssl")
	startEPMD(t, b.dir, b.env, epmd, ports[2])
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("RabbitMQ said:\n%s", b.node.said())
		}
	})
	b.start()
	return b
}

// rabbitEnv returns the environment of a node whose files are all in dir. The node is found through
// the epmd at that port, and other nodes connect to distPort.
func rabbitEnv(t testing.TB, dir, name string, epmdPort, distPort int, config []string, plugins string) []string {
	file := func(name string, content []byte) string {
		p := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(p, content, 0o600))
		return p
	}
	var env []string
	for name, value := range map[string]string{
		"HOME": dir, "ERL_EPMD_PORT": fmt.Sprint(epmdPort), "ERL_EPMD_ADDRESS": "127.0.0.1",
		"RABBITMQ_NODENAME": name, "RABBITMQ_DIST_PORT": fmt.Sprint(distPort),
		"RABBITMQ_CONF_ENV_FILE":        file("env.conf", nil),
		"RABBITMQ_CONFIG_FILE":          file("rabbitmq.conf", []byte(strings.Join(config, "\n")+"\n")),
		"RABBITMQ_ADVANCED_CONFIG_FILE": file("advanced.config", []byte("[].\n")),
		"RABBITMQ_ENABLED_PLUGINS_FILE": file("plugins", []byte("["+plugins+"].\n")),
		"RABBITMQ_GENERATED_CONFIG_DIR": filepath.Join(dir, "generated"),
		"RABBITMQ_FEATURE_FLAGS_FILE":   filepath.Join(dir, "feature_flags"),
		"RABBITMQ_PLUGINS_EXPAND_DIR":   filepath.Join(dir, "expanded"),
		"RABBITMQ_MNESIA_BASE":          filepath.Join(dir, "mnesia"),
		"RABBITMQ_LOG_BASE":             filepath.Join(dir, "log"),
		"RABBITMQ_LOGS":                 "-",
		"RABBITMQ_ALLOW_INPUT":          "1", // makes the program exec Erlang instead of starting it as a child
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-noinput +sbwt none +sbwtdcpu none +sbwtdio none -kernel " +
			"inet_dist_use_interface {127,0,0,1}",
	} {
		env = append(env, name+"="+value)
	}
	return env
}

// startEPMD runs the name service of Erlang. If a node started it, it would remain as a daemon.
func startEPMD(t testing.TB, dir string, env []string, program string, port int) {
	startChild(t, dir, env, program, "-port", fmt.Sprint(port))
	eventually(t, "epmd listens", func() bool { return listens(loopback(port)) })
}

// start runs the broker, also after kill, and waits until it listens.
func (b *rabbit) start() {
	b.t.Helper()
	b.node = startChild(b.t, b.dir, b.env, rabbitProgram)
	for _, addr := range []string{b.plain, b.secure} {
		within(b.t, rabbitBoot, "RabbitMQ listens at "+addr, func() bool { return listens(addr) })
	}
}

// kill ends the broker with SIGKILL.
func (b *rabbit) kill() { b.node.kill() }

func listens(addr string) bool {
	c, err := net.Dial("tcp", addr)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

// child is a process that cannot outlive the test.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	log   *os.File
}

// startChild runs a program below a shell that kills it on kill, at the end of the test, or when
// this process has ended.
func startChild(t testing.TB, dir string, env []string, program string, args ...string) *child {
	t.Helper()
	const watch = `"$@" & child=$!; read -r _; kill -9 $child; wait $child`
	log, err := os.CreateTemp(dir, filepath.Base(program)+"-*.log")
	require.NoError(t, err)
	c := &child{cmd: exec.Command("/bin/sh", append([]string{"-c", watch, "sh", program}, args...)...), log: log}
	c.cmd.Env, c.cmd.Dir = append(os.Environ(), env...), dir
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.stdin, err = c.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	t.Cleanup(c.kill)
	return c
}

// kill ends the program and waits for its end. A second call does nothing.
func (c *child) kill() {
	_ = c.stdin.Close()
	_ = c.cmd.Wait()
	_ = c.log.Close()
}

// said returns the output of the program.
func (c *child) said() []byte {
	all, _ := os.ReadFile(c.log.Name())
	return all
}
