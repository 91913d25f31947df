package atmodem_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cross/arm/board/atmodem"
	"github.com/hubline-iot/hubline/cross/arm/internal/modems"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/transport"
)

func TestNewNamesTheWrongField(t *testing.T) {
	near, _ := memconn.Pair("board", "modem")
	port := modems.NewPort(near)
	defer port.Close()
	right := atmodem.Config{Port: port, Dialect: atmodem.BG9x, Host: "hub.example.test", CA: "ca.pem"}
	_, err := atmodem.New(right)
	require.NoError(t, err)
	for field, change := range map[string]func(*atmodem.Config){
		"Port":       func(c *atmodem.Config) { c.Port = nil },
		"Dialect":    func(c *atmodem.Config) { c.Dialect = nil },
		"Host":       func(c *atmodem.Config) { c.Host = "hub.example.test\",1\rAT+CFUN=0" },
		"CA":         func(c *atmodem.Config) { c.CA = "" },
		"AnyName":    func(c *atmodem.Config) { c.Dialect = atmodem.SIM7x00 },
		"Password":   func(c *atmodem.Config) { c.Password = "secret-word" },
		"PowerKey":   func(c *atmodem.Config) { c.PowerKey, c.PowerCycle = func(bool) {}, func(context.Context) {} },
		"PIN":        func(c *atmodem.Config) { c.PIN = "12\r4" },
		"PIN short":  func(c *atmodem.Config) { c.PIN = "123" },
		"PIN long":   func(c *atmodem.Config) { c.PIN = "123456789" },
		"APN":        func(c *atmodem.Config) { c.APN = `x","y` },
		"User":       func(c *atmodem.Config) { c.User = strings.Repeat("x", 101) },
		"Password h": func(c *atmodem.Config) { c.User, c.Password = "u", "secret-word\n" },
	} {
		c := right
		change(&c)
		_, err := atmodem.New(c)
		require.ErrorContains(t, err, strings.Fields(field)[0], field)
		require.NotContains(t, err.Error(), "secret-word")
	}
}

func TestDialToChecksTheHost(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBench(t, setup{})
		for _, host := range []string{"", "a b", "h\",1,2\r", strings.Repeat("x", 101)} {
			_, err := b.modem.DialTo(t.Context(), host)
			require.ErrorIs(t, err, transport.Invalid)
		}
		require.Empty(t, b.emu.Commands())
	})
}
