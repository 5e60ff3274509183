// Command transactions drives franz-go's transactions; compat/transactions.py says what is asked.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const stepMax = 20 * time.Second

// A record is a value and its partition, as a JSON array.
type record struct {
	value     string
	partition int32
}

func (r *record) UnmarshalJSON(data []byte) error {
	pair := [2]any{&r.value, &r.partition}
	return json.Unmarshal(data, &pair)
}

type step struct {
	Name            string   `json:"name"`
	Op              string   `json:"op"`
	TransactionalID string   `json:"transactional_id"`
	Records         []record `json:"records"`
	Committed       bool     `json:"committed"`
	Until           []string `json:"until"`
	Group           string   `json:"group"`
	Source          string   `json:"source"`
	Count           int      `json:"count"`
	Prefix          string   `json:"prefix"`
	Commit          bool     `json:"commit"`
	Zombie          record   `json:"zombie"`
	Heir            record   `json:"heir"`
	TimeoutMs       int      `json:"timeout_ms"`
	Late            record   `json:"late"`
	After           record   `json:"after"`
}

type scenario struct {
	Bootstrap string `json:"bootstrap"`
	Topic     string `json:"topic"`
	Steps     []step `json:"steps"`
}

type driver struct {
	bootstrap string
	topic     string
}

func (d *driver) perform(ctx context.Context, s step) (any, error) {
	switch s.Op {
	case "commit":
		return d.write(ctx, s.TransactionalID, s.Records, kgo.TryCommit)
	case "abort":
		return d.write(ctx, s.TransactionalID, s.Records, kgo.TryAbort)
	case "read":
		return d.read(ctx, s.Committed, s.Until)
	case "transform":
		return d.transform(ctx, s)
	case "fence":
		return d.fence(ctx, s)
	case "time_out":
		return d.timeOut(ctx, s)
	}
	return nil, fmt.Errorf("no call for %s", s.Op)
}

func (d *driver) options(transactionalID string, timeout time.Duration) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(d.bootstrap), kgo.TransactionalID(transactionalID), kgo.TransactionTimeout(timeout),
		kgo.DefaultProduceTopic(d.topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
}

func (d *driver) producer(transactionalID string, timeout time.Duration) (*kgo.Client, error) {
	return kgo.NewClient(d.options(transactionalID, timeout)...)
}

func (d *driver) send(ctx context.Context, client *kgo.Client, records []record) error {
	for _, r := range records {
		out := &kgo.Record{Value: []byte(r.value), Partition: r.partition}
		if err := client.ProduceSync(ctx, out).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

func (d *driver) begin(ctx context.Context, client *kgo.Client, records ...record) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	return d.send(ctx, client, records)
}

func (d *driver) write(ctx context.Context, id string, records []record, end kgo.TransactionEndTry) (any, error) {
	client, err := d.producer(id, 15*time.Second)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if err := d.begin(ctx, client, records...); err != nil {
		return nil, err
	}
	return len(records), client.EndTransaction(ctx, end)
}

func (d *driver) read(ctx context.Context, committed bool, until []string) (any, error) {
	level := kgo.ReadUncommitted()
	if committed {
		level = kgo.ReadCommitted()
	}
	starts := map[int32]kgo.Offset{0: kgo.NewOffset().AtStart(), 1: kgo.NewOffset().AtStart()}
	client, err := kgo.NewClient(kgo.SeedBrokers(d.bootstrap), kgo.FetchIsolationLevel(level),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{d.topic: starts}))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found := map[string][]string{"0": {}, "1": {}}
	missing := map[string]bool{}
	for _, value := range until {
		missing[value] = true
	}
	for len(missing) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return nil, fmt.Errorf("%w: %v after %v", err, missing, found)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			partition := strconv.Itoa(int(r.Partition))
			found[partition] = append(found[partition], string(r.Value))
			delete(missing, string(r.Value))
		})
	}
	return found, nil
}

func (d *driver) transform(ctx context.Context, s step) (any, error) {
	options := append(d.options(s.TransactionalID, 15*time.Second),
		kgo.ConsumerGroup(s.Group), kgo.ConsumeTopics(s.Source), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	session, err := kgo.NewGroupTransactSession(options...)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	values := []string{}
	for len(values) < s.Count {
		fetches := session.PollRecords(ctx, s.Count-len(values))
		if err := fetches.Err0(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	if err := session.Begin(); err != nil {
		return nil, err
	}
	for _, value := range values {
		out := &kgo.Record{Value: []byte(s.Prefix + value)}
		if err := session.ProduceSync(ctx, out).FirstErr(); err != nil {
			return nil, err
		}
	}
	committed, err := session.End(ctx, kgo.TransactionEndTry(s.Commit))
	if err == nil && committed != s.Commit {
		err = fmt.Errorf("the session committed: %v", committed)
	}
	return values, err
}

func (d *driver) fence(ctx context.Context, s step) (any, error) {
	zombie, err := d.producer(s.TransactionalID, 15*time.Second)
	if err != nil {
		return nil, err
	}
	defer zombie.Close()
	if err := d.begin(ctx, zombie, s.Zombie); err != nil {
		return nil, err
	}
	heir, err := d.producer(s.TransactionalID, 15*time.Second)
	if err != nil {
		return nil, err
	}
	defer heir.Close()
	if err := d.begin(ctx, heir, s.Heir); err != nil {
		return nil, err
	}
	told := told(zombie.EndTransaction(ctx, kgo.TryCommit))
	return told, heir.EndTransaction(ctx, kgo.TryCommit)
}

func (d *driver) timeOut(ctx context.Context, s step) (any, error) {
	late, err := d.producer(s.TransactionalID, time.Duration(s.TimeoutMs)*time.Millisecond)
	if err != nil {
		return nil, err
	}
	defer late.Close()
	if err := d.begin(ctx, late, s.Late); err != nil {
		return nil, err
	}
	if _, err := d.write(ctx, d.topic+"-after", []record{s.After}, kgo.TryCommit); err != nil {
		return nil, err
	}
	if _, err := d.read(ctx, true, []string{s.After.value}); err != nil {
		return nil, err
	}
	return told(late.EndTransaction(ctx, kgo.TryCommit)), nil
}

// told is the error of a commit that must fail, or nothing.
func told(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == "github.com/twmb/franz-go" {
			return dependency.Version
		}
	}
	return "unknown"
}

func main() {
	var s scenario
	if err := json.NewDecoder(os.Stdin).Decode(&s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	d := &driver{bootstrap: s.Bootstrap, topic: s.Topic}
	out := json.NewEncoder(os.Stdout)
	out.Encode(map[string]string{"client": "franz-go " + version()})
	for _, one := range s.Steps {
		ctx, cancel := context.WithTimeout(context.Background(), stepMax)
		value, err := d.perform(ctx, one)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("took over %v: %w", stepMax, err)
		}
		if err != nil {
			out.Encode(map[string]any{"step": one.Name, "error": err.Error()})
		} else {
			out.Encode(map[string]any{"step": one.Name, "value": value})
		}
	}
}
