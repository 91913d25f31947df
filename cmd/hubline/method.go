package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/hubline-iot/hubline/device"
)

// serving has the flags of hubline method serve.
type serving struct {
	*connection
	status  int
	answer  string
	program string

	mu sync.Mutex // held while a line is printed
}

// maxAnswer is the longest answer that a hub takes.
const maxAnswer = 128 << 10

func (t *tool) methodCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "method", Short: "serve direct methods", Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return noCommand(c, nil) },
	}
	s := &serving{}
	serve := &cobra.Command{
		Use: "serve [flags] [NAME...]", Short: "answer calls until Ctrl-C", Long: helpText("method"),
		Args: arguments(0, -1),
		RunE: func(c *cobra.Command, names []string) error { return s.run(c.Context(), names) },
	}
	flags := serve.Flags()
	flags.IntVar(&s.status, "status", 200, "status of the answers")
	flags.StringVar(&s.answer, "answer", "{}", "`JSON` of the answers")
	flags.StringVar(&s.program, "exec", "", "`PROGRAM` that answers: its argument is the name, its input the JSON")
	s.connection = t.connection(serve)
	c.AddCommand(serve)
	return c
}

func (s *serving) run(ctx context.Context, names []string) error {
	if !json.Valid([]byte(s.answer)) || len(s.answer) > maxAnswer {
		return usage("-answer: not JSON, or longer than %d bytes; write {\"ok\":true}", maxAnswer)
	}
	if s.program != "" {
		if _, err := exec.LookPath(s.program); err != nil {
			return usage("-exec: %v; give the path of a program, such as ./reboot.sh", err)
		}
	}
	if len(names) == 0 {
		names = []string{""} // all
	}
	session, err := s.prepare(ctx, &device.Options{})
	if err != nil {
		return err
	}
	defer session.Close()
	for _, name := range names {
		if err := session.HandleMethod(name, s.serve); err != nil {
			return usage("%v", err)
		}
	}
	if err := s.open(ctx, session); err != nil {
		return err
	}
	<-session.ctx.Done()
	return session.ended(session.ctx)
}

// served is a line of the output.
type served struct {
	Time   time.Time       `json:"time"`
	Method string          `json:"method"`
	Body   json.RawMessage `json:"body,omitempty"`
	Status int             `json:"status"`
}

// serve answers a call and prints it.
func (s *serving) serve(ctx context.Context, m *device.MethodCall) (status int, answer []byte) {
	line := served{Time: time.Now().UTC(), Method: m.Name}
	if json.Valid(m.Body) {
		line.Body = bytes.Clone(m.Body)
	}
	status, answer = s.status, []byte(s.answer)
	if s.program != "" {
		status, answer = s.execute(ctx, m)
	}
	line.Status = status
	text, err := json.Marshal(line)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		_, err = fmt.Fprintf(s.tool.out, "%s\n", text)
	}
	if err != nil {
		s.say("output: %v", err)
	}
	return status, answer
}

// execute runs the program. Its output is the answer; a program that fails, or that answers
// something else than JSON, gives the status 500.
func (s *serving) execute(ctx context.Context, m *device.MethodCall) (status int, answer []byte) {
	ctx, kill := context.WithCancel(ctx)
	defer kill()
	command := exec.CommandContext(ctx, s.program, m.Name)
	command.Stdin = bytes.NewReader(bytes.Clone(m.Body))
	command.Stderr = s.tool.log
	command.WaitDelay = time.Second
	out := answerBuffer{full: kill}
	command.Stdout = &out
	if err := command.Run(); err != nil {
		switch {
		case out.tooLong:
			err = errLongAnswer
		case ctx.Err() != nil:
			err = errLateAnswer
		}
		s.say("-exec: %s: %v", m.Name, err)
		return 500, []byte(`{"error":"the program failed"}`)
	}
	answer = bytes.TrimSpace(out.text.Bytes())
	if len(answer) == 0 {
		return s.status, []byte("{}")
	}
	if !json.Valid(answer) {
		s.say("-exec: %s: the program printed something else than JSON", m.Name)
		return 500, []byte(`{"error":"the program printed something else than JSON"}`)
	}
	return s.status, answer
}

// answerBuffer is a buffer for an answer. It calls full when the answer is too long.
type answerBuffer struct {
	text    bytes.Buffer
	full    func()
	tooLong bool
}

// Why a program was ended.
var (
	errLongAnswer = fmt.Errorf("the program printed more than %d bytes, and a hub takes no more", maxAnswer)
	errLateAnswer = errors.New("the program was ended, because the time of the call or the command was over")
)

func (b *answerBuffer) Write(p []byte) (int, error) {
	if b.text.Len()+len(p) > maxAnswer {
		b.tooLong = true
		b.full()
		return 0, errLongAnswer
	}
	return b.text.Write(p)
}
