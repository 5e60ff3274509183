"use strict";
// kafkajs' transactions; compat/transactions.py says what is asked.

const path = require("node:path");

const { Kafka, logLevel } = require(path.join(process.env.OTTLA_NODE_MODULES, "kafkajs"));
const { version } = require(path.join(process.env.OTTLA_NODE_MODULES, "kafkajs/package.json"));

const STEP_MS_MAX = 20_000;

async function until(condition, what) {
  const deadline = Date.now() + STEP_MS_MAX;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error(`timed out: ${what()}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

class Driver {
  constructor(bootstrap, topic) {
    this.topic = topic;
    this.groups = 0;
    this.kafka = new Kafka({
      clientId: "compat", brokers: [bootstrap], logLevel: logLevel.NOTHING,
      requestTimeout: 15_000, retry: { retries: 8 },
    });
  }

  async producer(transactionalId, transactionTimeout = 15_000) {
    const producer = this.kafka.producer({
      transactionalId, transactionTimeout, idempotent: true, maxInFlightRequests: 1,
      createPartitioner: () => (given) => given.message.partition,
    });
    await producer.connect();
    return producer;
  }

  async send(transaction, records) {
    for (const [value, partition] of records) {
      await transaction.send({ topic: this.topic, acks: -1, messages: [{ value, partition }] });
    }
    return records.length;
  }

  async write(step, end) {
    const producer = await this.producer(step.transactional_id);
    try {
      const transaction = await producer.transaction();
      const sent = await this.send(transaction, step.records);
      await transaction[end]();
      return sent;
    } finally {
      await producer.disconnect();
    }
  }

  async commit(step) {
    return this.write(step, "commit");
  }

  async abort(step) {
    return this.write(step, "abort");
  }

  async read(step) {
    const found = { 0: [], 1: [] };
    const missing = new Set(step.until);
    // kafkajs consumes through groups only.
    const groupId = `${this.topic}-reader-${this.groups++}`;
    const consumer = this.kafka.consumer({ groupId, readUncommitted: !step.committed, maxWaitTimeInMs: 100 });
    await consumer.connect();
    try {
      await consumer.subscribe({ topics: [this.topic], fromBeginning: true });
      await consumer.run({
        autoCommit: false,
        eachMessage: async ({ partition, message }) => {
          found[partition].push(message.value.toString());
          missing.delete(message.value.toString());
        },
      });
      await until(() => missing.size === 0, () => `${[...missing]} after ${JSON.stringify(found)}`);
    } finally {
      await consumer.disconnect();
    }
    return found;
  }

  async transform(step) {
    const consumer = this.kafka.consumer({ groupId: step.group, maxWaitTimeInMs: 100 });
    const producer = await this.producer(step.transactional_id);
    const taken = [];
    await consumer.connect();
    try {
      await consumer.subscribe({ topics: [step.source], fromBeginning: true });
      await consumer.run({ autoCommit: false, eachMessage: async ({ message }) => { taken.push(message); } });
      await until(() => taken.length >= step.count, () => `${taken.length} taken`);
      const used = taken.slice(0, step.count);
      const values = used.map((message) => message.value.toString());
      const transaction = await producer.transaction();
      await this.send(transaction, values.map((value) => [`${step.prefix}${value}`, 0]));
      const offset = String(Number(used[used.length - 1].offset) + 1);
      await transaction.sendOffsets({
        consumerGroupId: step.group,
        topics: [{ topic: step.source, partitions: [{ partition: 0, offset }] }],
      });
      await (step.commit ? transaction.commit() : transaction.abort());
      return values;
    } finally {
      await consumer.disconnect();
      await producer.disconnect();
    }
  }

  async fence(step) {
    const zombie = await this.producer(step.transactional_id);
    const undead = await zombie.transaction();
    await this.send(undead, [step.zombie]);
    const heir = await this.producer(step.transactional_id);
    const transaction = await heir.transaction();
    await this.send(transaction, [step.heir]);
    const told = await this.told(undead);
    await transaction.commit();
    await heir.disconnect();
    await zombie.disconnect();
    return told;
  }

  async time_out(step) {
    const late = await this.producer(step.transactional_id, step.timeout_ms);
    const transaction = await late.transaction();
    await this.send(transaction, [step.late]);
    await this.commit({ transactional_id: `${this.topic}-after`, records: [step.after] });
    await this.read({ committed: true, until: [step.after[0]] });
    const told = await this.told(transaction);
    await late.disconnect();
    return told;
  }

  // The error of a commit that must fail, or nothing.
  async told(transaction) {
    try {
      await transaction.commit();
    } catch (error) {
      return `${error.name} ${error.type ?? ""}: ${error.message}`;
    }
    return "";
  }
}

async function main() {
  const chunks = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  const scenario = JSON.parse(Buffer.concat(chunks).toString());
  const driver = new Driver(scenario.bootstrap, scenario.topic);
  const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
  print({ client: `kafkajs ${version}` });
  for (const step of scenario.steps) {
    try {
      print({ step: step.name, value: await driver[step.op](step) });
    } catch (error) {
      print({ step: step.name, error: `${error.name}: ${error.message}` });
    }
  }
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(2);
});
