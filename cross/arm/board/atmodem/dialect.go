package atmodem

import (
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// Dialect is a table of the commands of a family of modems.
type Dialect struct {
	settings []command // after each start; the first one switches the echo off
	tries    command   // how many tries the PIN has left, in field triesField
	clock    command
	// triesField is a field of tries' answer.
	triesField int
	utc        bool // clock's answer is in UTC, and its zone is only told
	checksName bool // secure can compare the certificate's name
	radio      []command
	restart    command // when there is neither PowerKey nor PowerCycle
	remove     command // a file
	store      command // a file

	plain, secure service
	events        []event

	key keyTimes
}

// keyTimes are the times of PWRKEY.
type keyTimes struct {
	off  time.Duration // pressed, to switch off
	down time.Duration // until it is off
	on   time.Duration // pressed, to switch on
	boot time.Duration // until it answers
}

// service is a kind of sockets.
type service struct {
	ids            int       // socket ids
	detach, attach []command // end and begin the data connection; failures of detach are ignored
	open           command
	handshake      int // open's code for a failed TLS handshake; 0: none
	shut           command
	send           command
	count          command // bytes that can be read; no text: read tells
	countField     int     // of count's answer; byID: the one at the socket's id
	read           command
}

// byID in countField: one field for each socket.
const byID = -1

// command is a command and what is expected of its answer.
//
// Placeholders in text: %a APN, %u user, %w password, %t kind of authentication, %k PIN, %f CA
// file, %h host, %p port, %i socket id, %n length.
//
// The tables are in RAM, so the fields are small.
type command struct {
	text string // without "AT"
	// info begins the line whose rest is the answer. Without it the answer is not complete.
	info string
	// data begins the line before data; length is the field with the number of bytes. Fields count
	// from 1.
	data   string
	length uint8
	// code is the field of info that is 0 for success, took the one with the number of bytes taken;
	// 0: none.
	code, took uint8

	async    bool  // the info line may come after the final one
	own      bool  // the first field of info and data is the socket's id; other ids are not meant
	sendOK   bool  // the final line is "SEND OK", not "OK"
	connect  bool  // the prompt is "CONNECT", not ">"
	user     bool  // only if Config.User is set
	name     bool  // only unless Config.AnyName is set
	optional bool  // a refusal is ignored
	seconds  uint8 // the limit; default 5
	kind     transport.Kind
	hint     hint // of a refusal
}

// hint is the number of a text that helps.
type hint uint8

const (
	noHint hint = iota
	hintAPN
	hintCA
	hintOld
	hintHost
	hintName
)

var hints = [...]string{
	noHint:   "",
	hintAPN:  "; check APN, User and Password",
	hintCA:   "; write the file with WriteCA",
	hintOld:  "; the modem's firmware is too old to verify certificates",
	hintHost: "; check Host, TCPPort and the hub",
	hintName: "; the modem's firmware does not compare the certificate's name: update it, or see AnyName",
}

// defaultSeconds limits a command.
const defaultSeconds = 5

// event is a line that the modem sends by itself. Its rest begins with a socket id, if it is about
// a socket.
type event struct {
	prefix string
	what   what
}

type what uint8

const (
	received what = iota
	closed
	detached
	restarted
)
