// Markdown as elements: marked reads it, and nothing of it is ever taken as HTML.
import { marked, type Token, type Tokens } from 'marked';
import type { ComponentChildren } from 'preact';
import { useMemo, useState } from 'preact/hooks';

export function Markdown({ text }: { text: string }) {
  const tokens = useMemo(() => marked.lexer(text, { gfm: true, breaks: true }), [text]);
  return <>{tokens.map(block)}</>;
}

function block(token: Token): ComponentChildren {
  switch (token.type) {
    case 'heading': {
      const Tag = `h${Math.min(6, (token as Tokens.Heading).depth + 2)}` as 'h3';
      return <Tag>{inline(token.tokens)}</Tag>;
    }
    case 'paragraph':
      return <p>{inline(token.tokens)}</p>;
    case 'code':
      return <Code text={token.text} language={(token as Tokens.Code).lang ?? ''} />;
    case 'blockquote':
      return <blockquote>{token.tokens?.map(block)}</blockquote>;
    case 'hr':
      return <hr />;
    case 'list': {
      const list = token as Tokens.List;
      const items = list.items.map((item) => (
        <li>
          {item.task && <input type="checkbox" checked={item.checked} disabled />}
          {item.tokens.map(block)}
        </li>
      ));
      return list.ordered ? <ol start={Number(list.start) || 1}>{items}</ol> : <ul>{items}</ul>;
    }
    case 'table': {
      const table = token as Tokens.Table;
      return (
        <div class="wide">
          <table>
            <thead>
              <tr>{table.header.map((c) => <th style={{ textAlign: c.align ?? 'left' }}>{inline(c.tokens)}</th>)}</tr>
            </thead>
            <tbody>
              {table.rows.map((row) => (
                <tr>{row.map((c) => <td style={{ textAlign: c.align ?? 'left' }}>{inline(c.tokens)}</td>)}</tr>
              ))}
            </tbody>
          </table>
        </div>
      );
    }
    case 'space':
    case 'def':
      return null;
    default:
      return 'tokens' in token && token.tokens ? inline(token.tokens) : token.raw;
  }
}

function inline(tokens: Token[] | undefined): ComponentChildren {
  return tokens?.map((token) => {
    switch (token.type) {
      case 'strong':
        return <strong>{inline(token.tokens)}</strong>;
      case 'em':
        return <em>{inline(token.tokens)}</em>;
      case 'del':
        return <del>{inline(token.tokens)}</del>;
      case 'codespan':
        return <code>{token.text}</code>;
      case 'br':
        return <br />;
      case 'escape':
        return token.text;
      case 'link': {
        const link = token as Tokens.Link;
        // Only addresses that a click may open; others (javascript:) stay text.
        if (!/^(https?:|mailto:)/i.test(link.href)) return inline(link.tokens);
        return <a href={link.href} target="_blank" rel="noopener noreferrer">{inline(link.tokens)}</a>;
      }
      case 'image':
        // The page asks nobody but its own server for anything.
        return token.raw;
      default:
        return 'tokens' in token && token.tokens ? inline(token.tokens) : (token as Tokens.Text).raw;
    }
  });
}

function Code({ text, language }: { text: string; language: string }) {
  return (
    <figure class="code">
      <figcaption>
        <span>{language}</span>
        <CopyButton text={text} />
      </figcaption>
      <pre><code>{text}</code></pre>
    </figure>
  );
}

export function CopyButton({ text }: { text: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    if (!(await copyText(text))) return;
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return <button type="button" class="quiet" onClick={copy}>{copied ? 'Copied' : 'Copy'}</button>;
}

async function copyText(text: string): Promise<boolean> {
  // Pages from other hosts without TLS have no clipboard.
  if (navigator.clipboard) return navigator.clipboard.writeText(text).then(() => true, () => false);
  const area = document.createElement('textarea');
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand('copy');
  area.remove();
  return done;
}
