// Command franzgo drives franz-go as a client of the suite; compat/scenario.py says what it does.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const stepMax = 20 * time.Second

type record struct {
	Partition int32       `json:"partition"`
	Offset    int64       `json:"offset"`
	Timestamp int64       `json:"timestamp"`
	Key       *string     `json:"key"`
	Value     *string     `json:"value"`
	Headers   [][2]string `json:"headers"`
}

type step struct {
	Name       string            `json:"name"`
	Op         string            `json:"op"`
	Partitions int32             `json:"partitions"`
	Configs    map[string]string `json:"configs"`
	Codec      string            `json:"codec"`
	Acks       string            `json:"acks"`
	Idempotent bool              `json:"idempotent"`
	Records    []record          `json:"records"`
	Timestamp  int64             `json:"timestamp"`
	Names      []string          `json:"names"`
	Count      int               `json:"count"`
	Group      string            `json:"group"`
	Partition  int32             `json:"partition"`
	Offset     int64             `json:"offset"`
}

type scenario struct {
	Bootstrap string `json:"bootstrap"`
	Topic     string `json:"topic"`
	Steps     []step `json:"steps"`
}

type result struct {
	Step    string `json:"step"`
	Value   any    `json:"value,omitempty"`
	Error   string `json:"error,omitempty"`
	Skipped string `json:"skipped,omitempty"`
}

type driver struct {
	bootstrap string
	topic     string
	admin     *kadm.Client
	delivered int
}

var errNotOffered = errors.New("franz-go has no such call")

func (d *driver) client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(d.bootstrap)}, options...)...)
}

func (d *driver) perform(ctx context.Context, s step) (any, error) {
	switch s.Op {
	case "create_topic":
		return d.createTopic(ctx, s)
	case "describe_topic":
		return d.partitionsKnown(ctx)
	case "produce":
		return d.produce(ctx, s)
	case "consume":
		return d.consume(ctx, s)
	case "group_consume":
		return d.groupConsume(ctx, s)
	case "list_offsets":
		return d.listOffsets(ctx)
	case "seek_by_time":
		return d.seekByTime(ctx, s)
	case "alter_configs":
		return d.alterConfigs(ctx, s)
	case "describe_configs":
		return d.describeConfigs(ctx, s.Names)
	case "add_partitions":
		return d.addPartitions(ctx, s)
	case "delete_records":
		return d.deleteRecords(ctx, s)
	case "delete_topic":
		return d.deleteTopic(ctx)
	}
	return nil, errNotOffered
}

// until asks again every 50 ms while the context lives.
func until(ctx context.Context, condition func() (bool, error)) error {
	for {
		held, err := condition()
		if held || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (d *driver) partitionsKnown(ctx context.Context) (int, error) {
	topics, err := d.admin.ListTopics(ctx, d.topic)
	if err != nil {
		return 0, err
	}
	led := 0
	for _, part := range topics[d.topic].Partitions {
		if part.Leader >= 0 {
			led++
		}
	}
	return led, nil
}

func (d *driver) awaitPartitions(ctx context.Context, count int) error {
	return until(ctx, func() (bool, error) {
		known, err := d.partitionsKnown(ctx)
		return known == count, err
	})
}

func (d *driver) createTopic(ctx context.Context, s step) (any, error) {
	configs := map[string]*string{}
	for name, value := range s.Configs {
		configs[name] = &value
	}
	if _, err := d.admin.CreateTopic(ctx, s.Partitions, 1, configs, d.topic); err != nil {
		return nil, err
	}
	return true, d.awaitPartitions(ctx, int(s.Partitions))
}

func (d *driver) produce(ctx context.Context, s step) (any, error) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	acks := map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}
	options := []kgo.Opt{
		kgo.DefaultProduceTopic(d.topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[s.Codec]), kgo.RequiredAcks(acks[s.Acks]),
		kgo.ProducerLinger(20 * time.Millisecond),
	}
	if !s.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := d.client(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var batch []*kgo.Record
	for _, r := range s.Records {
		out := &kgo.Record{Partition: r.Partition, Timestamp: time.UnixMilli(r.Timestamp)}
		out.Key, out.Value = bytesOf(r.Key), bytesOf(r.Value)
		for _, header := range r.Headers {
			out.Headers = append(out.Headers, kgo.RecordHeader{Key: header[0], Value: []byte(header[1])})
		}
		batch = append(batch, out)
	}
	if err := client.ProduceSync(ctx, batch...).FirstErr(); err != nil {
		return nil, err
	}
	d.delivered += len(batch)
	return len(batch), nil
}

func bytesOf(text *string) []byte {
	if text == nil {
		return nil
	}
	return append([]byte{}, *text...)
}

func textOf(data []byte) *string {
	if data == nil {
		return nil
	}
	text := string(data)
	return &text
}

// read polls until `count` records came or the step's time is over, and sorts them in log order.
func read(ctx context.Context, client *kgo.Client, count int) ([]record, error) {
	records := []record{}
	for len(records) < count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return nil, err
		}
		if failed := fetches.Errors(); len(failed) > 0 {
			return nil, failed[0].Err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			headers := [][2]string{}
			for _, header := range r.Headers {
				headers = append(headers, [2]string{header.Key, string(header.Value)})
			}
			records = append(records, record{r.Partition, r.Offset, r.Timestamp.UnixMilli(),
				textOf(r.Key), textOf(r.Value), headers})
		})
	}
	slices.SortFunc(records, func(a, b record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return records, nil
}

func (d *driver) consume(ctx context.Context, s step) (any, error) {
	starts := map[int32]kgo.Offset{}
	for p := range s.Partitions {
		starts[p] = kgo.NewOffset().AtStart()
	}
	client, err := d.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{d.topic: starts}))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return read(ctx, client, d.delivered)
}

func (d *driver) groupConsume(ctx context.Context, s step) (any, error) {
	client, err := d.client(kgo.ConsumerGroup(s.Group), kgo.ConsumeTopics(d.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records, err := read(ctx, client, d.delivered)
	if err != nil {
		return nil, err
	}
	if err := client.CommitUncommittedOffsets(ctx); err != nil {
		return nil, err
	}
	offsets, err := d.admin.FetchOffsets(ctx, s.Group)
	if err != nil {
		return nil, err
	}
	committed := int64(0)
	offsets.Each(func(o kadm.OffsetResponse) { committed += max(o.At, 0) })
	if committed != int64(d.delivered) {
		return nil, fmt.Errorf("committed %d of %d", committed, d.delivered)
	}
	return records, nil
}

func (d *driver) listOffsets(ctx context.Context) (any, error) {
	first, err := d.admin.ListStartOffsets(ctx, d.topic)
	if err != nil {
		return nil, err
	}
	end, err := d.admin.ListEndOffsets(ctx, d.topic)
	if err != nil {
		return nil, err
	}
	found := map[string][2]int64{}
	first.Each(func(o kadm.ListedOffset) {
		last, _ := end.Lookup(d.topic, o.Partition)
		found[strconv.Itoa(int(o.Partition))] = [2]int64{o.Offset, last.Offset}
	})
	return found, errors.Join(first.Error(), end.Error())
}

func (d *driver) seekByTime(ctx context.Context, s step) (any, error) {
	found := map[string]int64{}
	for p := range s.Partitions {
		starts := map[int32]kgo.Offset{p: kgo.NewOffset().AfterMilli(s.Timestamp)}
		client, err := d.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{d.topic: starts}))
		if err != nil {
			return nil, err
		}
		records, err := read(ctx, client, 1)
		client.Close()
		if err != nil {
			return nil, err
		}
		found[strconv.Itoa(int(p))] = records[0].Offset
	}
	return found, nil
}

func (d *driver) alterConfigs(ctx context.Context, s step) (any, error) {
	var changes []kadm.AlterConfig
	var names []string
	for name, value := range s.Configs {
		names = append(names, name)
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
	}
	answers, err := d.admin.AlterTopicConfigs(ctx, changes, d.topic)
	if err != nil {
		return nil, err
	}
	if _, err := answers.On(d.topic, func(r *kadm.AlterConfigsResponse) error { return r.Err }); err != nil {
		return nil, err
	}
	return true, until(ctx, func() (bool, error) {
		now, err := d.describeConfigs(ctx, names)
		if err != nil {
			return false, err
		}
		for name, value := range s.Configs {
			if now[name] != value {
				return false, nil
			}
		}
		return true, nil
	})
}

func (d *driver) describeConfigs(ctx context.Context, names []string) (map[string]string, error) {
	configs, err := d.admin.DescribeTopicConfigs(ctx, d.topic)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	_, err = configs.On(d.topic, func(r *kadm.ResourceConfig) error {
		for _, config := range r.Configs {
			if slices.Contains(names, config.Key) {
				found[config.Key] = config.MaybeValue()
			}
		}
		return r.Err
	})
	return found, err
}

func (d *driver) addPartitions(ctx context.Context, s step) (any, error) {
	answers, err := d.admin.UpdatePartitions(ctx, s.Count, d.topic)
	if err == nil {
		err = answers.Error()
	}
	if err != nil {
		return nil, err
	}
	if err := d.awaitPartitions(ctx, s.Count); err != nil {
		return nil, err
	}
	return d.partitionsKnown(ctx)
}

func (d *driver) deleteRecords(ctx context.Context, s step) (any, error) {
	var offsets kadm.Offsets
	offsets.AddOffset(d.topic, s.Partition, s.Offset, -1)
	answers, err := d.admin.DeleteRecords(ctx, offsets)
	if err == nil {
		err = answers.Error()
	}
	if err != nil {
		return nil, err
	}
	answer, _ := answers.Lookup(d.topic, s.Partition)
	return answer.LowWatermark, nil
}

func (d *driver) deleteTopic(ctx context.Context) (any, error) {
	if _, err := d.admin.DeleteTopic(ctx, d.topic); err != nil {
		return nil, err
	}
	err := until(ctx, func() (bool, error) {
		topics, err := d.admin.ListTopics(ctx)
		return !topics.Has(d.topic), err
	})
	return err != nil, err
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
	client, err := d.client()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	d.admin = kadm.NewClient(client)
	defer client.Close()
	out := json.NewEncoder(os.Stdout)
	out.Encode(map[string]string{"client": "franz-go " + version()})
	for _, one := range s.Steps {
		ctx, cancel := context.WithTimeout(context.Background(), stepMax)
		value, err := d.perform(ctx, one)
		cancel()
		switch {
		case errors.Is(err, errNotOffered):
			out.Encode(result{Step: one.Name, Skipped: err.Error()})
		case err != nil:
			out.Encode(result{Step: one.Name, Error: err.Error()})
		default:
			out.Encode(result{Step: one.Name, Value: value})
		}
	}
}
