package atmodem

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
)

// input is a line with a fixed input. Writes are dropped.
type input struct{ rest []byte }

func (i *input) Read(p []byte) int {
	n := copy(p[:min(len(p), 7)], i.rest)
	i.rest = i.rest[n:]
	return n
}

func (*input) Write(p []byte) int { return len(p) }
func (*input) Pause()             {}

// answers is a line with an answer to each command.
type answers struct {
	input
	to map[string]string
}

func (a *answers) Write(p []byte) int {
	a.rest = append(a.rest, a.to[string(p)]...)
	return len(p)
}

func (*answers) Pause() { time.Sleep(time.Millisecond) }

func TestClockTexts(t *testing.T) {
	day := time.Date(2030, 5, 1, 12, 34, 56, 0, time.UTC)
	for _, c := range []struct {
		text string
		utc  bool
		want time.Time
	}{
		{`"30/05/01,12:34:56+00"`, false, day},
		{`"2030/05/01,12:34:56+00"`, false, day},
		{`"30/05/01,12:34:56"`, false, day},
		{`"30/05/01,14:34:56+08"`, false, day},
		{`"30/05/01,09:04:56-14"`, false, day},
		{`"30/05/02,02:34:56+56"`, false, day},
		{`"2030/05/01,12:34:56+08,1"`, true, day},
		{`"80/01/06,00:00:42+00"`, false, time.Date(1980, 1, 6, 0, 0, 42, 0, time.UTC)},
		{`"70/01/01,00:00:42+00"`, false, time.Date(1970, 1, 1, 0, 0, 42, 0, time.UTC)},
		{`"04/01/01,00:00:00+00"`, false, time.Date(2004, 1, 1, 0, 0, 0, 0, time.UTC)},
		{`"28/02/29,00:00:00+00"`, false, time.Date(2028, 2, 29, 0, 0, 0, 0, time.UTC)},
	} {
		got, ok := parseClock([]byte(c.text), c.utc)
		require.True(t, ok, c.text)
		require.True(t, got.Equal(c.want), "%s: %v", c.text, got)
	}
	for _, text := range []string{
		``, `"`, `""`, `"30/05/01,12:34:56+00`, `"30/13/01,12:34:56+00"`, `"30/00/01,12:34:56+00"`,
		`"30/02/30,12:34:56+00"`, `"27/02/29,00:00:00+00"`,
		`"30/05/01,24:00:00+00"`, `"30/05/01,12:60:00+00"`,
		`"30/05/01,12:34:60+00"`, `"30/05/01,12:34:56+57"`, `"30/05/01,12:34:56*08"`, `"30/05/01,12:34:56+"`,
		`"30/05/01,12:34:56+8"`,
		`"30/5/01,12:34:56+00"`, `"130/05/01,12:34:56+00"`, `"30/05/01 12:34:56+00"`, `"99999999999/05/01,12:34:56"`,
		`"30/05/01,12:34:56+999999999999"`, `"-1/05/01,12:34:56+00"`,
	} {
		got, ok := parseClock([]byte(text), false)
		require.False(t, ok, "%s: %v", text, got)
	}
}

func TestFields(t *testing.T) {
	text := []byte(`0, "a,b" ,7,`)
	for i, want := range []string{"0", `"a,b"`, "7", ""} {
		require.Equal(t, want, string(field(text, i+1)))
	}
	require.Nil(t, field(text, 5))
	require.Nil(t, field(text, 0))
	for text, want := range map[string]int{"0": 0, "007": 7, "999999999": 999999999, "1000000000": -1, "": -1, "-1": -1,
		"1x": -1, " 1": -1} {
		require.Equal(t, want, number([]byte(text)), text)
	}
}

func TestLinesAreBounded(t *testing.T) {
	long := string(bytes.Repeat([]byte("x"), 5000))
	l := line{port: &input{rest: []byte("\r\n" + long + "\r\n\x00 OK\r\n\r\r\n> +A\r\nRDY")}}
	var got []string
	for range 100 {
		if text := l.next(true); text != nil {
			got = append(got, string(text))
		}
	}
	require.Equal(t, []string{"OK", ">", "+A"}, got)
}

func TestRungs(t *testing.T) {
	for _, c := range []struct {
		before, after int
		want          rung
	}{
		{0, 1, nothing}, {3, 4, data}, {4, 5, nothing}, {7, 8, radio}, {3, 8, radio}, {0, 4, data}, {15, 16, power},
		{16, 17, nothing}, {31, 32, power}, {30, 34, power}, {34, 63, nothing}, {63, 64, power},
	} {
		require.Equal(t, c.want, rungAfter(c.before, c.after), "%d to %d", c.before, c.after)
	}
	m := &Modem{}
	for range 100 {
		m.failed(maxFailures - 1)
	}
	require.Equal(t, maxFailures, m.failures)
}

// Answers with data are taken whole or not at all.
func TestAnswersWithData(t *testing.T) {
	for _, c := range []struct {
		said string
		want outcome
		data string
	}{
		{"\r\n+QIRD: 3\r\nabc\r\n\r\nOK\r\n", done, "abc"},
		{"\r\n+QIRD: 4\r\nOK\r\n\r\nOK\r\n", done, "OK\r\n"},
		{"\r\n+QIRD: 0\r\n\r\nOK\r\n", done, ""},
		{"\r\nOK\r\n\r\n+QIRD: 3\r\nabc\r\nOK\r\n", done, "abc"}, // after an OK that was late
		{"\r\n+QIRD: 3\r\nbc\r\nOK\r\n", silent, ""},
		{"\r\n+QIRD: 9\r\nabcdefghi\r\nOK\r\n", silent, ""}, // more than asked for
		{"\r\n+QIRD: -1\r\nOK\r\n", silent, ""},
		{"\r\nOK\r\n", pending, ""},
		{"\r\nERROR\r\n", refused, ""},
	} {
		port := &input{rest: []byte(c.said)}
		m := &Modem{cfg: Config{Port: port, Dialect: BG9x}, line: line{port: port}, args: args{length: 8}}
		in := make([]byte, 8, 16)
		x := exchange{c: &BG9x.plain.read, in: in}
		got := pending
		for range len(c.said) + 5 {
			if _, got = m.advance(&x); got != pending {
				break
			}
		}
		require.Equal(t, c.want, got, "%q", c.said)
		if got == done {
			require.Equal(t, c.data, string(in[:x.got]), "%q", c.said)
		}
	}
}

// The answer without its header has lost the data: a read of 0 bytes would leave a hole.
func TestDataWithoutTheirHeaderAreNotTaken(t *testing.T) {
	for said, want := range map[string]outcome{
		"\r\nOK\r\n\r\n+CCHRECV: DATA,0,3\r\nabc\r\n+CCHRECV: 0,0\r\n": done,
		"\r\nOK\r\n\r\n+CHRECV: DATA,0,3\r\nabc\r\n+CCHRECV: 0,0\r\n":  silent,
	} {
		port := &answers{to: map[string]string{"AT+CCHRECV=0,8\r": said}}
		m := &Modem{cfg: Config{Port: port, Dialect: SIM7x00}, line: line{port: port}, args: args{length: 8}}
		_, got := m.run(never{}, &SIM7x00.secure.read, nil, make([]byte, 8))
		require.Equal(t, want, got, "%q", said)
		require.Equal(t, want == silent, m.unsettled, "%q", said)
	}
}

// The number of tries may get lost. That says nothing about the PIN, so the next dial asks again.
func TestALostNumberOfTriesIsNoAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		said string
		want error
	}{
		"lost":           {"", transport.Timeout},
		"without an end": {"\r\n+SPIC: 3,10,3,10\r\n", transport.Timeout},
		"busy":           {"\r\n+CME ERROR: 14\r\n", transport.Unavailable},
		"unknown":        {"\r\nERROR\r\n", errTries},
		"two":            {"\r\n+SPIC: 2,10,3,10\r\n\r\nOK\r\n", errTries},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			port := &answers{to: map[string]string{"AT+CPIN?\r": "\r\n+CPIN: SIM PIN\r\n\r\nOK\r\n", "AT+SPIC\r": c.said}}
			m := &Modem{cfg: Config{Port: port, Dialect: SIM7x00, PIN: "1234"}, line: line{port: port}}
			require.ErrorIs(t, m.unlock(never{}), c.want)
			require.NotEqual(t, pinTried, m.pin)
		})
	}
}

// hungUp gives up when asked for the second time, so that a line comes between.
type hungUp struct{ asked int }

func (h *hungUp) stopped() bool { h.asked++; return h.asked > 1 }

// A modem that may wait for a payload takes the next command for it.
func TestAPayloadWithoutItsPromptIsTorn(t *testing.T) {
	for name, c := range map[string]struct {
		s      stopper
		out    []byte
		prompt string
		want   outcome
		torn   bool
	}{
		"the prompt is lost":        {never{}, []byte("data"), "", silent, true},
		"the answer is lost":        {never{}, []byte("data"), "\r\n>", silent, true},
		"hung up before the prompt": {&hungUp{}, []byte("data"), "", abandoned, true},
		"hung up after it":          {&hungUp{}, []byte("data"), "\r\n>", abandoned, false},
		"no payload":                {never{}, nil, "", silent, false},
		"no payload, hung up":       {&hungUp{}, nil, "", abandoned, false},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			port := &answers{to: map[string]string{"AT+CCHSEND=0,4\r": c.prompt}}
			m := &Modem{cfg: Config{Port: port, Dialect: SIM7x00}, line: line{port: port}, args: args{length: 4}}
			_, o := m.run(c.s, &SIM7x00.secure.send, c.out, nil)
			require.Equal(t, c.want, o)
			require.Equal(t, c.torn, m.torn)
		})
	}
}

// Each placeholder is known, each name of a command is short, and what may be a secret follows "=".
func TestDialectsAreComplete(t *testing.T) {
	for name, d := range map[string]*Dialect{"SIM7x00": SIM7x00, "BG9x": BG9x} {
		all := append([]command{d.tries, d.clock, d.restart, d.remove, d.store}, d.settings...)
		all = append(all, d.radio...)
		for _, s := range []*service{&d.plain, &d.secure} {
			all = append(append(all, s.detach...), s.attach...)
			all = append(all, s.open, s.shut, s.send, s.read)
			require.Positive(t, s.ids)
			if s.count.text != "" {
				all = append(all, s.count)
			}
		}
		m := &Modem{cfg: Config{APN: "A", User: "U", Password: "W", PIN: "1", CA: "F", TCPPort: 1}, args: args{host: "H"}}
		for i := range all {
			text := string(m.appendCommand(nil, all[i].text))
			require.NotContains(t, text, "%", name)
			require.NotEmpty(t, all[i].text, name)
			require.NotContains(t, nameOf(&all[i]), "%", name)
		}
		require.NotEmpty(t, d.events)
	}
}

// Whatever a modem says, data are not more than asked for, and nothing beyond them is written.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte("\r\n+QIRD: 5\r\nOK\r\n!\r\nOK\r\n"), byte(0))
	f.Add([]byte("\r\nOK\r\n\r\n+CCHRECV: DATA,0,3\r\nabc\r\n+CCHRECV: 0,0\r\n"), byte(1))
	f.Add([]byte("\r\n+CIPRXGET: 2,0,3,0\r\nabc\r\nOK\r\n"), byte(2))
	f.Add([]byte("\r\n> \r\nSEND OK\r\n"), byte(3))
	f.Add([]byte("\r\nRDY\r\n+CME ERROR: 99999999999\r\n"), byte(4))
	f.Add([]byte("\r\n+CCLK: \"24/05/01,12:34:56+08\"\r\nOK\r\n"), byte(5))
	f.Fuzz(func(t *testing.T, said []byte, which byte) {
		commands := []struct {
			d   *Dialect
			c   *command
			out []byte
			in  int
		}{
			{BG9x, &BG9x.plain.read, nil, 16}, {SIM7x00, &SIM7x00.secure.read, nil, 16},
			{SIM7x00, &SIM7x00.plain.read, nil, 16}, {BG9x, &BG9x.secure.send, []byte("payload"), 0},
			{SIM7x00, &SIM7x00.plain.send, []byte("payload"), 0}, {SIM7x00, &SIM7x00.clock, nil, 0},
			{BG9x, &BG9x.clock, nil, 0}, {SIM7x00, &SIM7x00.secure.open, nil, 0}, {BG9x, &askSIM, nil, 0},
			{SIM7x00, &SIM7x00.secure.count, nil, 0},
		}
		x := commands[int(which)%len(commands)]
		m := &Modem{cfg: Config{Dialect: x.d}, busy: make(chan struct{}, 1), openID: -1}
		line := &input{rest: said}
		m.cfg.Port, m.line.port = line, line
		m.conn = &conn{m: m}
		m.args.length = max(x.in, len(x.out))
		var in []byte
		if x.in > 0 {
			in = bytes.Repeat([]byte{0xee}, x.in+4)
		}
		e := exchange{c: x.c, out: x.out}
		if in != nil {
			e.in = in[:x.in]
		}
		for range len(said) + 3 { // each step consumes a byte or ends
			progress, o := m.advance(&e)
			if o != pending || !progress && len(line.rest) == 0 && len(m.line.rest) == 0 {
				break
			}
		}
		require.LessOrEqual(t, e.got, max(x.in, len(x.out)))
		if in != nil {
			require.Equal(t, []byte{0xee, 0xee, 0xee, 0xee}, in[x.in:])
		}
		if at, ok := parseClock(said, which%2 == 0); ok {
			require.Less(t, at.Year(), 2101)
		}
		_ = m.simState(done)
	})
}
