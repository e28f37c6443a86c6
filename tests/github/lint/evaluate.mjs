// GitHub's own evaluation: reads [{text, contexts}, ...] from stdin, prints a list of the values as JSON.
import fs from "node:fs";
import {data, Evaluator, Lexer, Parser} from "@actions/expressions";

const STATUS = ["always", "cancelled", "failure", "success"].map((name) => ({name, minArgs: 0, maxArgs: 0}));

function value({text, contexts, status}) {
  const {tokens} = new Lexer(text).lex();
  const tree = new Parser(tokens, Object.keys(contexts), STATUS).parse();
  const given = JSON.parse(JSON.stringify(contexts), data.reviver);
  const functions = new Map(
    STATUS.map((one) => [one.name, {...one, call: () => new data.BooleanData(one.name === "always" || one.name === status)}])
  );
  return new Evaluator(tree, given, functions).evaluate();
}

const asked = JSON.parse(fs.readFileSync(0, "utf8"));
console.log(JSON.stringify(asked.map((one) => JSON.parse(JSON.stringify(value(one), data.replacer)))));
