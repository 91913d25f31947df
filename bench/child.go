package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
)

// childEnv names the measurement of a child process.
const childEnv = "HUBLINE_BENCH_CHILD"

// children are the measurements that need a separate process. Each reads its settings from in and
// returns its report. say sends the parent an earlier message, such as "ready" when the parent's
// part begins.
var children = map[string]func(in *json.Decoder, say func(any)) (any, error){
	"desk":   deskChild,
	"reader": deskReaderChild,
	"fleet":  fleetChild,
	"idle":   idleChild,
	"outage": outageChild,
	"peer":   peerChild,
}

// Child runs the measurement of a child process, and exits. In other processes it does nothing. A
// program that uses children must call it first.
func Child() {
	f, ok := children[os.Getenv(childEnv)]
	if !ok {
		return
	}
	out := json.NewEncoder(os.Stdout)
	report, err := f(json.NewDecoder(os.Stdin), func(v any) { _ = out.Encode(v) })
	if err == nil {
		err = out.Encode(report)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// child is another process of the same program.
type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    io.Reader
	said   *json.Decoder
	stderr bytes.Buffer
}

// startChild starts a child and sends its settings. The child runs until end, or ctx.
func startChild(ctx context.Context, name string, settings any) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self)}
	c.cmd.Env = append(os.Environ(), childEnv+"="+name)
	c.cmd.Stderr = &c.stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if c.out, err = c.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	c.said = json.NewDecoder(c.out)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	if err := json.NewEncoder(c.in).Encode(settings); err != nil {
		return nil, c.end(err)
	}
	return c, nil
}

// say sends the child a further message.
func (c *child) say(v any) error { return json.NewEncoder(c.in).Encode(v) }

// hear waits for the child's next message.
func (c *child) hear(v any) error { return c.said.Decode(v) }

// end closes the child's input, which ends a peer, and waits for the process. It returns the
// child's failure, or else err.
func (c *child) end(err error) error {
	_ = c.in.Close()
	_, _ = io.Copy(io.Discard, c.out)
	if waitErr := c.cmd.Wait(); waitErr != nil {
		return fmt.Errorf("child process: %w: %s", waitErr, c.stderr.Bytes())
	}
	return err
}

// inChild runs a measurement in another process of the same program. It calls ready when the child
// sends "ready".
func inChild(ctx context.Context, name string, settings, report any, ready func()) error {
	c, err := startChild(ctx, name, settings)
	if err != nil {
		return err
	}
	var word string
	if err = c.hear(&word); err == nil {
		if ready != nil {
			ready()
		}
		err = c.hear(report)
	}
	return c.end(err)
}

// profile writes a CPU profile of this process into a directory until stop is called. An empty
// directory means none.
func profile(dir, name string) (stop func(), err error) {
	if dir == "" {
		return func() {}, nil
	}
	f, err := os.Create(filepath.Join(dir, name+".pprof"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close()
	}, nil
}
