// sarama. Usage: sarama BROKER [PROTOCOL VERSION], which is sarama's own default when not given
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"matrix/flow"
)

type client struct {
	broker  string
	version *sarama.KafkaVersion
}

func (c client) config() *sarama.Config {
	conf := sarama.NewConfig()
	if c.version != nil {
		conf.Version = *c.version
	}
	conf.Consumer.Offsets.Initial = sarama.OffsetOldest
	return conf
}

func (c client) Create(topic string, partitions int) error {
	a, err := sarama.NewClusterAdmin([]string{c.broker}, c.config())
	if err != nil {
		return err
	}
	defer a.Close()
	detail := &sarama.TopicDetail{NumPartitions: int32(partitions), ReplicationFactor: 1}
	return a.CreateTopic(topic, detail, false)
}

func encoder(b []byte) sarama.Encoder {
	if b == nil {
		return nil
	}
	return sarama.ByteEncoder(b)
}

func (c client) Produce(topic string, records []flow.Record, m flow.Mode) error {
	conf := c.config()
	conf.Producer.Return.Successes = true
	conf.Producer.Partitioner = sarama.NewManualPartitioner
	if m.Codec != "" {
		if err := conf.Producer.Compression.UnmarshalText([]byte(m.Codec)); err != nil {
			return err
		}
	}
	if m.Idempotent != nil && *m.Idempotent {
		conf.Producer.Idempotent, conf.Producer.RequiredAcks = true, sarama.WaitForAll
		conf.Net.MaxOpenRequests = 1
	}
	p, err := sarama.NewSyncProducer([]string{c.broker}, conf)
	if err != nil {
		return err
	}
	defer p.Close()
	batch := make([]*sarama.ProducerMessage, len(records))
	for i, r := range records {
		batch[i] = &sarama.ProducerMessage{Topic: topic, Partition: int32(r.Partition),
			Key: encoder(r.Key), Value: encoder(r.Value)}
		for _, h := range r.Headers {
			batch[i].Headers = append(batch[i].Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
		}
	}
	if err := p.SendMessages(batch); err != nil {
		return err
	}
	for i, b := range batch {
		records[i].Offset = b.Offset
	}
	return nil
}

func (c client) Consume(topic string, partitions, count int) (got []flow.Record, err error) {
	consumer, err := sarama.NewConsumer([]string{c.broker}, c.config())
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	for p := range partitions {
		pc, err := consumer.ConsumePartition(topic, int32(p), sarama.OffsetOldest)
		if err != nil {
			return got, err
		}
		for range count / partitions {
			select {
			case r := <-pc.Messages():
				out := flow.Record{Partition: int(r.Partition), Offset: r.Offset, Key: r.Key, Value: r.Value}
				for _, h := range r.Headers {
					out.Headers = append(out.Headers, flow.Header{Key: string(h.Key), Value: h.Value})
				}
				got = append(got, out)
			case <-time.After(20 * time.Second):
				pc.AsyncClose()
				return got, fmt.Errorf("partition %d: nothing for 20 s after %d records", p, len(got))
			}
		}
		if err := pc.Close(); err != nil {
			return got, err
		}
	}
	return got, nil
}

type member struct {
	g        sarama.ConsumerGroup
	see      func([]byte)
	topic    string
	mu       sync.Mutex
	assigned []int
	cancel   context.CancelFunc
	done     chan error
}

func (m *member) set(claims []int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.assigned = nil
	for _, p := range claims {
		m.assigned = append(m.assigned, int(p))
	}
}

func (m *member) Setup(s sarama.ConsumerGroupSession) error {
	m.set(s.Claims()[m.topic])
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	m.set(nil)
	return nil
}

func (m *member) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for r := range c.Messages() {
		m.see(r.Value)
		s.MarkMessage(r, "")
	}
	return nil
}

func (c client) Member(group, topic string, see func([]byte)) (flow.Member, error) {
	g, err := sarama.NewConsumerGroup([]string{c.broker}, group, c.config())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{g: g, see: see, topic: topic, cancel: cancel, done: make(chan error, 1)}
	go func() {
		var err error
		for err == nil && ctx.Err() == nil {
			err = g.Consume(ctx, []string{topic}, m)
		}
		m.done <- err
	}()
	return m, nil
}

func (m *member) Assigned() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.assigned)
}

func (m *member) Stop() error {
	m.cancel()
	err := <-m.done
	if e := m.g.Close(); err == nil {
		err = e
	}
	return err
}

func (c client) Committed(group, topic string, partitions int) (out []int64, err error) {
	a, err := sarama.NewClusterAdmin([]string{c.broker}, c.config())
	if err != nil {
		return nil, err
	}
	defer a.Close()
	ps := []int32{}
	for p := range partitions {
		ps = append(ps, int32(p))
	}
	found, err := a.ListConsumerGroupOffsets(group, map[string][]int32{topic: ps})
	if err != nil {
		return nil, err
	}
	for _, p := range ps {
		out = append(out, found.GetBlock(topic, p).Offset)
	}
	return out, nil
}

func main() {
	c, name := client{broker: os.Args[1]}, "sarama"
	codecs := []string{"gzip", "snappy", "lz4", "zstd"}
	if len(os.Args) > 2 {
		v, err := sarama.ParseKafkaVersion(os.Args[2])
		if err != nil {
			panic(err)
		}
		c.version, name = &v, "sarama-"+v.String()
		if !v.IsAtLeast(sarama.V2_1_0_0) { // the client refuses zstd below 2.1
			codecs = codecs[:3]
		}
	}
	flow.Main(c, flow.Plan{Name: name, Version: flow.ModuleVersion("github.com/IBM/sarama"),
		Codecs: codecs, Idempotent: true})
}
