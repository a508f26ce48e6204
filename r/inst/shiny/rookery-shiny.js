// What a page of Shiny needs to go on when the R behind it has ended. Put into the page by rookery (R/serve-shiny.R).
//
// Shiny's client opens a new session with the inputs of the old one, if the app has said session$allowReconnect(TRUE) and the
// socket has a field `allowReconnect` that is true. A browser's WebSocket has no such field, so a page on a plain server never does:
// this gives it one. Behind several Rs it also says, where no cookie can, which of them has made the page.
(function () {
  'use strict';

  // data-reconnect: app (if the app allows it), always (unless it forbids it), never.
  // data-worker: what the R that made this page is called; not there where there is one R.
  const { reconnect, worker } = document.currentScript.dataset;

  // An end in which somebody said that it is one is final, as with Shiny Server: the app has closed the session. Others are not: the
  // network's (not clean), a server that goes away (1001), is started again (1012) or asks for patience (1013), and Shiny Server's own.
  const isFinal = ({ wasClean, code }) => wasClean && ![1001, 1012, 1013].includes(code) && !(code >= 4700 && code < 4800);

  let isFirst = true;

  // Where Shiny's own client would go.
  function open() {
    const url = new URL(window.location.href);
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
    url.pathname = `${url.pathname.replace(/\/$/, '')}/websocket/`;
    url.hash = '';
    // The R that has made the page, and after that any: it may be the one that ends.
    url.search = worker === undefined ? '' : `?w=${isFirst ? worker : ''}`;
    const socket = new WebSocket(url.href);
    socket.binaryType = 'arraybuffer';
    return socket;
  }

  // Forgets what the ended session's outputs were doing. Shiny from 1.10 on keeps that for each output and refuses a message that does
  // not follow from it. Until https://github.com/rstudio/shiny/pull/4425 it kept it for the next session too, which starts every output
  // anew: the page reconnected, but dropped the first value of each output that it had shown before.
  const forgetProgress = () => window.Shiny.shinyapp?.$outputProgress?.outputStates?.clear?.();

  function install() {
    const { Shiny } = window;
    if (!Shiny) return;
    const others = Shiny.createSocket;
    Shiny.createSocket = () => {
      const socket = others ? others() : open();
      if (reconnect === 'always' && isFirst && Shiny.shinyapp?.$allowReconnect === false) {
        // Until the app says otherwise.
        Shiny.shinyapp.$allowReconnect = true;
      }
      if (!isFirst) forgetProgress();
      isFirst = false;
      // Until it has opened as well: a server that is just being started refuses.
      socket.allowReconnect = reconnect !== 'never';
      socket.addEventListener('close', (event) => {
        if (isFinal(event)) socket.allowReconnect = false;
      });
      return socket;
    };
  }

  if (window.Shiny) install();
  else document.addEventListener('DOMContentLoaded', install);
}());
