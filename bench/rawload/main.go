// Command rawload loads one Kafka broker with ready-made frames and says what that cost.
//
// Client libraries batch, copy, compress and retry; on a machine with two cores they, and not
// the broker, would be measured. This program sends the same bytes again and again over a few
// connections with a fixed number of requests in flight, checks the error code of every answer,
// and reads the broker's CPU time from /proc. It prints one JSON object.
//
//	go run ./bench/rawload -addr 127.0.0.1:9092 -create -records 1 -size 100 -conns 4 -inflight 5
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	frameBytesMax  = 256 << 20
	prefixBytes    = 512 // what is read of a response to check it; the rest is discarded
	dialTimeout    = 10 * time.Second
	answerTimeout  = 60 * time.Second
	leadersTimeout = 60 * time.Second
	clockTicks     = 100 // USER_HZ, the unit of /proc/PID/stat on every Linux
)

type options struct {
	addr       string
	mode       string
	topic      string
	partitions int
	conns      int
	inflight   int
	records    int
	size       int
	acks       int
	maxBytes   int
	offsets    int64
	seconds    float64
	warmup     float64
	requests   int64
	pids       []string
}

type report struct {
	Mode        string  `json:"mode"`
	Requests    int64   `json:"requests"`
	Seconds     float64 `json:"seconds"`
	RequestRate float64 `json:"requests_per_s"`
	MegaBytes   float64 `json:"mb_per_s"`
	P50         float64 `json:"p50_us"`
	P99         float64 `json:"p99_us"`
	P999        float64 `json:"p999_us"`
	Max         float64 `json:"max_us"`
	BrokerCPU   float64 `json:"broker_cpu_s"`
	CPUPerReq   float64 `json:"broker_cpu_us_per_request"`
	CPUPerMB    float64 `json:"broker_cpu_ms_per_mb"`
}

// tally is what one connection measured after the warm-up.
type tally struct {
	latencies []time.Duration
	bytes     int64
}

// window is shared by all connections: when to count and when to stop.
type window struct {
	countFrom time.Time
	stopAt    time.Time
	budget    atomic.Int64 // requests left; negative means without limit
	limited   bool
}

func (w *window) another(now time.Time) bool {
	if w.limited {
		return w.budget.Add(-1) >= 0
	}
	return now.Before(w.stopAt)
}

type link struct {
	conn  net.Conn
	frame []byte
	// Only for fetches: where the offset lies in the frame.
	offsetAt int
	slots    []time.Time
	tokens   chan struct{}
	order    chan int
}

func newLink(o options, index int, batch []byte) (*link, error) {
	conn, err := net.DialTimeout("tcp", o.addr, dialTimeout)
	if err != nil {
		return nil, err
	}
	l := &link{
		conn:   conn,
		slots:  make([]time.Time, o.inflight),
		tokens: make(chan struct{}, o.inflight),
		order:  make(chan int, o.inflight),
	}
	partition := int32(index % o.partitions)
	if o.mode == "produce" {
		l.frame = produceFrame(o.topic, partition, int16(o.acks), batch)
	} else {
		l.frame, l.offsetAt = fetchFrame(o.topic, partition, int32(o.maxBytes))
	}
	return l, nil
}

// send keeps `inflight` requests on the way until the window closes.
func (l *link) send(o options, w *window) error {
	defer close(l.order)
	for sent := 0; ; sent++ {
		l.tokens <- struct{}{}
		now := time.Now()
		if !w.another(now) {
			return nil
		}
		binary.BigEndian.PutUint32(l.frame[correlationAt:], uint32(sent))
		if l.offsetAt > 0 {
			offset := rand.Int64N(o.offsets)
			binary.BigEndian.PutUint64(l.frame[l.offsetAt:], uint64(offset))
		}
		slot := sent % o.inflight
		l.slots[slot] = now
		l.order <- slot
		if _, err := l.conn.Write(l.frame); err != nil {
			return err
		}
	}
}

// receive reads and checks one answer for every request, in order.
func (l *link) receive(o options, w *window, t *tally) error {
	in := bufio.NewReaderSize(l.conn, 256<<10)
	prefix := make([]byte, prefixBytes)
	expected := uint32(0)
	for slot := range l.order {
		l.conn.SetReadDeadline(time.Now().Add(answerTimeout))
		size, body, err := readPrefix(in, prefix)
		if err != nil {
			return err
		}
		done := time.Now()
		if got := binary.BigEndian.Uint32(body); got != expected {
			return fmt.Errorf("correlation id %d where %d was due", got, expected)
		}
		expected++
		bytes := o.records * o.size
		if o.mode == "produce" {
			err = produceResult(body[4:])
		} else {
			bytes, err = fetchResult(body[4:])
		}
		if err != nil {
			return fmt.Errorf("%w (a response of %d bytes)", err, size)
		}
		if sentAt := l.slots[slot]; sentAt.After(w.countFrom) {
			t.latencies = append(t.latencies, done.Sub(sentAt))
			t.bytes += int64(bytes)
		}
		<-l.tokens
	}
	return nil
}

// readPrefix returns the size of a response and its first bytes; the rest is thrown away.
func readPrefix(in *bufio.Reader, prefix []byte) (int, []byte, error) {
	if _, err := io.ReadFull(in, prefix[:4]); err != nil {
		return 0, nil, err
	}
	size := int(binary.BigEndian.Uint32(prefix))
	if size < 8 || size > frameBytesMax {
		return 0, nil, fmt.Errorf("a response announces %d bytes", size)
	}
	body := prefix[:min(size, len(prefix))]
	if _, err := io.ReadFull(in, body); err != nil {
		return 0, nil, err
	}
	_, err := in.Discard(size - len(body))
	return size, body, err
}

// sendOnly is for acks=0, which has no answers: the rate is what the broker's socket accepts.
func (l *link) sendOnly(o options, w *window, t *tally) error {
	for {
		now := time.Now()
		if !w.another(now) {
			return nil
		}
		if _, err := l.conn.Write(l.frame); err != nil {
			return err
		}
		if now.After(w.countFrom) {
			t.latencies = append(t.latencies, time.Since(now))
			t.bytes += int64(o.records * o.size)
		}
	}
}

func load(o options) (report, error) {
	batch := recordBatch(o.records, o.size, time.Now().UnixMilli())
	links := make([]*link, o.conns)
	for i := range links {
		l, err := newLink(o, i, batch)
		if err != nil {
			return report{}, err
		}
		defer l.conn.Close()
		links[i] = l
	}
	begin := time.Now()
	w := &window{limited: o.requests > 0}
	w.budget.Store(o.requests)
	w.countFrom = begin.Add(seconds(o.warmup))
	w.stopAt = w.countFrom.Add(seconds(o.seconds))
	tallies := make([]tally, o.conns)
	failures := make(chan error, 2*o.conns)
	var running sync.WaitGroup
	start := func(work func() error) {
		running.Add(1)
		go func() {
			defer running.Done()
			if err := work(); err != nil {
				failures <- err
				for _, l := range links {
					l.conn.Close()
				}
			}
		}()
	}
	for i, l := range links {
		if o.mode == "produce" && o.acks == 0 {
			start(func() error { return l.sendOnly(o, w, &tallies[i]) })
			continue
		}
		start(func() error { return l.send(o, w) })
		start(func() error {
			err := l.receive(o, w, &tallies[i])
			if err != nil { // let the sender run out instead of waiting for a token
				go func() {
					for range l.order {
					}
				}()
				go func() {
					for range l.tokens {
					}
				}()
			}
			return err
		})
	}
	time.Sleep(time.Until(w.countFrom))
	cpuBefore := cpuSeconds(o.pids)
	running.Wait()
	elapsed := time.Since(w.countFrom).Seconds()
	cpu := cpuSeconds(o.pids) - cpuBefore
	select {
	case err := <-failures:
		return report{}, err
	default:
	}
	return summary(o, tallies, elapsed, cpu), nil
}

func summary(o options, tallies []tally, elapsed, cpu float64) report {
	var all []time.Duration
	var bytes int64
	for _, t := range tallies {
		all = append(all, t.latencies...)
		bytes += t.bytes
	}
	slices.Sort(all)
	at := func(share float64) float64 {
		if len(all) == 0 {
			return 0
		}
		index := min(int(share*float64(len(all))), len(all)-1)
		return float64(all[index].Nanoseconds()) / 1e3
	}
	count := int64(len(all))
	megaBytes := float64(bytes) / 1e6
	r := report{
		Mode: o.mode, Requests: count, Seconds: elapsed,
		RequestRate: float64(count) / elapsed, MegaBytes: megaBytes / elapsed,
		P50: at(0.50), P99: at(0.99), P999: at(0.999), Max: at(1), BrokerCPU: cpu,
	}
	if count > 0 {
		r.CPUPerReq = cpu * 1e6 / float64(count)
		r.CPUPerMB = cpu * 1e3 / megaBytes
	}
	return r
}

// cpuSeconds is the user and system time of the processes, all threads of each.
func cpuSeconds(pids []string) float64 {
	ticks := 0
	for _, pid := range pids {
		text, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			continue
		}
		// The command's name may hold spaces; fields are counted from its closing parenthesis.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		user, _ := strconv.Atoi(fields[11])
		system, _ := strconv.Atoi(fields[12])
		ticks += user + system
	}
	return float64(ticks) / clockTicks
}

// create makes the topic and waits until the leaders of all its partitions take a record.
func create(o options) error {
	conn, err := net.DialTimeout("tcp", o.addr, dialTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(leadersTimeout))
	ask := func(frame []byte) ([]byte, error) {
		if _, err := conn.Write(frame); err != nil {
			return nil, err
		}
		size := make([]byte, 4)
		if _, err := io.ReadFull(conn, size); err != nil {
			return nil, err
		}
		n := binary.BigEndian.Uint32(size)
		if n < 4 || n > frameBytesMax {
			return nil, fmt.Errorf("a response announces %d bytes", n)
		}
		body := make([]byte, n)
		_, err := io.ReadFull(conn, body)
		return body[4:], err
	}
	body, err := ask(createTopicFrame(o.topic, int32(o.partitions)))
	if err == nil {
		err = createTopicError(body)
	}
	if err != nil {
		return err
	}
	// Metadata may name a leader a moment before the leader knows, so each one is asked to write.
	for ready := int32(0); ready < int32(o.partitions); {
		body, err := ask(metadataFrame(o.topic))
		if err != nil {
			return err
		}
		if leadersKnown(body) {
			probe := produceFrame(o.topic, ready, 1, recordBatch(1, 1, time.Now().UnixMilli()))
			if body, err = ask(probe); err != nil {
				return err
			}
			if produceResult(body) == nil {
				ready++
				continue
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func parse() (options, bool) {
	var o options
	flag.StringVar(&o.addr, "addr", "127.0.0.1:9092", "broker")
	flag.StringVar(&o.mode, "mode", "produce", "produce or fetch")
	flag.StringVar(&o.topic, "topic", "rawload", "topic")
	flag.IntVar(&o.partitions, "partitions", 1, "partitions; connections take turns over them")
	flag.IntVar(&o.conns, "conns", 4, "connections")
	flag.IntVar(&o.inflight, "inflight", 5, "requests in flight on each connection")
	flag.IntVar(&o.records, "records", 1, "records in a batch")
	flag.IntVar(&o.size, "size", 100, "bytes of a record's value")
	flag.IntVar(&o.acks, "acks", 1, "acks of a produce request: 0, 1 or -1")
	flag.IntVar(&o.maxBytes, "maxbytes", 1<<20, "fetch: most bytes of an answer")
	flag.Int64Var(&o.offsets, "offsets", 1, "fetch: start at a random offset below this")
	flag.Float64Var(&o.seconds, "seconds", 5, "how long to measure")
	flag.Float64Var(&o.warmup, "warmup", 0, "seconds of the same load before measuring")
	flag.Int64Var(&o.requests, "requests", 0, "stop after this many requests instead of after -seconds")
	pids := flag.String("pid", "", "process ids of the broker, comma separated, for its CPU time")
	makeTopic := flag.Bool("create", false, "create the topic first and wait for its leaders")
	flag.Parse()
	if *pids != "" {
		o.pids = strings.Split(*pids, ",")
	}
	return o, *makeTopic
}

func main() {
	o, makeTopic := parse()
	if o.mode != "produce" && o.mode != "fetch" || o.conns < 1 || o.inflight < 1 || o.partitions < 1 {
		flag.Usage()
		os.Exit(2)
	}
	var err error
	if makeTopic {
		err = create(o)
	}
	var r report
	if err == nil {
		r, err = load(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	json.NewEncoder(os.Stdout).Encode(r)
}
